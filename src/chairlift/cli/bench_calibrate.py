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
    from chairlift.simulate.cost_model import Fit


@engine_options(environment=False)
def calibrate(
    *,
    model: ModelArgument = DEFAULT_MODEL,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the cost model here, as JSON.")
    ] = None,
    from_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Run nothing; fit to the steps that a server logged with --step-log.",
        ),
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
      chairlift bench calibrate --from-log steps.jsonl --output cost.json
    """
    from chairlift.simulate.cost_model import save_cost_model

    fit, about = _fit_log(from_log) if from_log else _fit_engine(model, config(model))
    if output is not None:
        save_cost_model(output, fit.model, about)
    if as_json:
        print(json.dumps({"coefficients_s": asdict(fit.model), "about": about}))
    else:
        print("\n".join(_lines(fit, about)))


def _fit_log(path: Path) -> tuple[Fit, dict[str, Any]]:
    from chairlift.simulate.cost_model import fit_cost_model
    from chairlift.simulate.step_records import read_step_log

    fit = fit_cost_model(read_step_log(path))
    return fit, {"from": str(path)} | _quality(fit)


def _fit_engine(model: str, wanted: EngineConfig) -> tuple[Fit, dict[str, Any]]:
    from chairlift.bench.calibrate import calibrate as run
    from chairlift.engine.factory import build_engine_core
    from chairlift.simulate.cost_model import fit_cost_model

    wanted = replace(wanted, cache=replace(wanted.cache, enable_prefix_caching=False))
    ensure_fetched(model)
    built = build_engine_core(wanted)
    info = built.info
    fit = fit_cost_model(run(built.core, info.limits, wanted.scheduler.max_num_seqs))
    about = {
        "from": f"{info.model_name}, {info.dtype}, {info.isa}, {info.num_threads} threads",
    }
    return fit, about | _quality(fit)


def _quality(fit: Fit) -> dict[str, Any]:
    return {"num_steps": fit.num_steps, "mean_error": round(fit.mean_error, 4)}


def _lines(fit: Fit, about: dict[str, Any]) -> list[str]:
    cost = fit.model
    return [
        f"{about['from']}: {fit.num_steps} steps, mean error {fit.mean_error:.1%}",
        f"a step takes            {cost.step_s * 1e3:10.4f} ms",
        f"+ per token computed    {cost.token_s * 1e3:10.4f} ms",
        f"+ per token above {cost.knee_tokens:3.0f}   {cost.late_token_s * 1e3:10.4f} ms",
        f"+ per token attended to {cost.context_token_s * 1e6:10.4f} us",
        f"+ per request           {cost.sequence_s * 1e3:10.4f} ms",
        f"+ per token sampled     {cost.head_row_s * 1e3:10.4f} ms",
    ]
