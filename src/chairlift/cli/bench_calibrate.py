"""``chairlift bench calibrate``: fit a cost model for the simulation to real steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chairlift.cli.arguments import JsonOption, ModelArgument
from chairlift.cli.options import engine_options
from chairlift.cli.progress import ensure_fetched
from chairlift.config import DEFAULT_MODEL, EngineConfig

if TYPE_CHECKING:
    from chairlift.engine.messages import EngineInfo
    from chairlift.simulate.cost_model import Fit


@engine_options(environment=False)
def calibrate(
    *,
    model: ModelArgument = DEFAULT_MODEL,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the cost model here, as JSON.")
    ] = None,
    as_json: JsonOption = False,
    config: Callable[[str], EngineConfig],
) -> None:
    """Fit a cost model for chairlift simulate to steps of MODEL on this machine.

    Runs batches of 1 to --max-num-seqs requests with short, middle and long prompts, which takes
    a minute or two for a small model, and needs the machine to itself.

    Examples:

    \b
      chairlift bench calibrate --output cost.json
      chairlift simulate --cost-model cost.json --rate 5
    """
    from chairlift.bench.calibrate import calibrate as run
    from chairlift.engine.factory import build_engine_core
    from chairlift.simulate.cost_model import fit_cost_model, save_cost_model

    wanted = config(model)
    wanted = replace(wanted, cache=replace(wanted.cache, enable_prefix_caching=False))
    ensure_fetched(model)
    built = build_engine_core(wanted)
    records = run(built.core, built.info.limits, wanted.scheduler.max_num_seqs)
    fit = fit_cost_model(records)
    about = _about(built.info, fit)
    if output is not None:
        save_cost_model(output, fit.model, about)
    if as_json:
        print(json.dumps({"coefficients_s": asdict(fit.model), "about": about}))
    else:
        print("\n".join(_lines(fit, about)))


def _about(info: EngineInfo, fit: Fit) -> dict[str, Any]:
    return {
        "model": info.model_name,
        "dtype": info.dtype,
        "isa": info.isa,
        "num_threads": info.num_threads,
        "num_steps": fit.num_steps,
        "mean_error": round(fit.mean_error, 4),
    }


def _lines(fit: Fit, about: dict[str, Any]) -> list[str]:
    cost = fit.model
    return [
        f"{about['model']}, {about['dtype']}, {about['isa']}, {about['num_threads']} threads: "
        f"{fit.num_steps} steps, mean error {fit.mean_error:.1%}",
        f"a step takes            {cost.step_s * 1e3:10.4f} ms",
        f"+ per token computed    {cost.token_s * 1e3:10.4f} ms",
        f"+ per token attended to {cost.context_token_s * 1e6:10.4f} us",
        f"+ per request           {cost.sequence_s * 1e3:10.4f} ms",
        f"+ per token sampled     {cost.head_row_s * 1e3:10.4f} ms",
    ]
