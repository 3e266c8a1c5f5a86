"""``chairlift bench compare``: static, dynamic and continuous batching against each other."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chairlift.cli.arguments import JsonOption, ModelArgument
from chairlift.cli.drawings import PngOption, SvgOption, check_can_draw, write_drawing
from chairlift.cli.options import engine_options
from chairlift.cli.progress import ensure_fetched
from chairlift.cli.study_options import workload_options
from chairlift.config import DEFAULT_MODEL, BatchingMode, EngineConfig, EngineLimits
from chairlift.errors import ConfigError
from chairlift.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from chairlift.bench.compare import LoadPoint, RunLoad
    from chairlift.core.cost_model import CostModel
    from chairlift.workload.request_metrics import RequestTimes
    from chairlift.workload.workload import Workload

_SIMULATED_BLOCKS = 16384
_MAX_REQUESTS = 600
_SIMULATED_MODEL_LEN = 8192


@engine_options(defaults={"max_num_seqs": 32}, environment=False)
@workload_options(
    defaults={
        "num_requests": 24,
        "arrivals": "constant",
        "prompt_lengths": "16",
        "output_lengths": "mix:0.96*lognormal:4,16+0.04*uniform:80-160",
    },
    skip=("rate", "prefix_groups", "prefix_tokens"),
)
def compare(  # noqa: PLR0913 - one parameter per flag
    *,
    model: ModelArgument = DEFAULT_MODEL,
    rates: Annotated[
        str, typer.Option(metavar="R,R,...", help="Requests per second to offer, ascending.")
    ] = "0.5,1,2,4,32,64,128",
    seconds: Annotated[
        float,
        typer.Option(
            help="How long requests keep coming at each rate: at least --num-requests, at most 600."
        ),
    ] = 12.0,
    ttft_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="A mode sustains a rate with p95 TTFT below.")
    ] = 1.0,
    cost_model: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Simulate with this cost model (a file, or a preset) instead of "
            "running MODEL."
        ),
    ] = "",
    svg: SvgOption = None,
    png: PngOption = None,
    as_json: JsonOption = False,
    work: WorkloadOptions,
    config: Callable[[str], EngineConfig],
) -> None:  # fmt: skip
    """Compare batching modes on the same engine, model, requests and arrivals.

    Runs the engine in this process, without HTTP, in real time; with --cost-model it is simulated.
    Static and dynamic batching hand out all tokens of a batch at once, with its last: their TTFT
    is their end-to-end latency, and their TPOT 0.

    Examples:

    \b
      chairlift bench compare --svg compare.svg
      chairlift bench compare --cost-model smollm2-135m-cpu --rates 0.5,1,2,4,8 --num-requests 500
    """
    from chairlift.bench.compare import charts, table, verdict
    from chairlift.bench.compare import compare as run
    from chairlift.workload.chart import charts_svg

    check_can_draw(png)
    offered = _rates(rates)
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"seconds must be at least 0 and finite, got {seconds}")
    if not ttft_limit > 0:
        raise ConfigError(f"ttft_limit must be above 0 seconds, got {ttft_limit}")
    wanted = config(model)
    runner = _simulated(wanted, cost_model) if cost_model else _real(model, wanted)

    def make_workload(rate: float) -> Workload:
        num_requests = max(work.num_requests, min(math.ceil(rate * seconds), _MAX_REQUESTS))
        return replace(work, rate=rate, num_requests=num_requests).build()

    points = run(offered, make_workload, runner, on_point=_progress)
    write_drawing(charts_svg(charts(points, ttft_limit)), svg, png)
    found = verdict(points, ttft_limit)
    if as_json:
        print(json.dumps({"points": [_as_dict(p) for p in points], "modes": found}))
    else:
        print("\n".join([*table(points), "", *_verdict_lines(found, ttft_limit)]))


def _rates(text: str) -> list[float]:
    try:
        rates = sorted({float(number) for number in text.split(",")})
    except ValueError:
        rates = []
    if not rates or not 0 < rates[0] <= rates[-1] < float("inf"):
        raise ConfigError(f"rates must be numbers above 0 with commas between, got {text!r}")
    return rates


def _simulated(config: EngineConfig, cost_model: str) -> RunLoad:
    from chairlift.simulate.cost_model import load_cost_model

    cost = load_cost_model(cost_model)

    def run(mode: BatchingMode, workload: Workload) -> tuple[RequestTimes, float, int]:
        return _simulate(config, cost, mode, workload)

    return run


def _simulate(
    config: EngineConfig, cost: CostModel, mode: BatchingMode, workload: Workload
) -> tuple[RequestTimes, float, int]:
    from chairlift.simulate.replica import ReplicaSetup
    from chairlift.simulate.simulator import simulate

    scheduler = replace(config.scheduler, batching=mode)
    limits = EngineLimits(
        vocab_size=1 << 40,
        max_model_len=config.model.max_model_len or _SIMULATED_MODEL_LEN,
        block_size=config.cache.block_size,
        num_kv_blocks=config.cache.num_kv_blocks or _SIMULATED_BLOCKS,
        max_num_waiting=scheduler.max_num_waiting,
        target_ttft_s=scheduler.target_ttft_s,
    )
    result = simulate(workload, ReplicaSetup(scheduler, limits, cost))
    if result.num_refused:
        raise ConfigError(
            f"{result.num_refused} requests were refused (too long, or more than "
            f"max_num_waiting {scheduler.max_num_waiting} waiting); raise the limits"
        )
    return result.times, result.duration_s, result.num_preemptions


def _real(model: str, config: EngineConfig) -> RunLoad:
    """Runs each mode on an engine of its own, built when first needed; only one is kept."""
    from chairlift.bench.engine_load import run_engine_load
    from chairlift.engine.factory import build_engine_core

    ensure_fetched(model)

    def run(mode: BatchingMode, workload: Workload) -> tuple[RequestTimes, float, int]:
        scheduler = replace(config.scheduler, batching=mode)
        built = build_engine_core(replace(config, scheduler=scheduler))
        result = run_engine_load(built.core, workload, built.info.limits.vocab_size)
        return result.times, result.duration_s, result.num_preemptions

    return run


def _progress(point: LoadPoint) -> None:
    if sys.stderr.isatty():
        print(
            f"{point.mode} at {point.rate_per_s:g}/s: {point.output_tokens_per_s:.1f} tokens/s",
            file=sys.stderr,
        )


def _as_dict(point: LoadPoint) -> dict[str, Any]:
    from chairlift.workload.report import summaries_ms

    return {
        "batching": point.mode,
        "rate_per_s": point.rate_per_s,
        "requests_per_s": round(point.requests_per_s, 4),
        "output_tokens_per_s": round(point.output_tokens_per_s, 3),
        "preemptions": point.num_preemptions,
        "latency_ms": summaries_ms(point.summaries),
    }


def _verdict_lines(found: dict[str, Any], ttft_limit: float) -> list[str]:
    lines = [
        f"{mode}: at most {figures['max_output_tokens_per_s']:,.1f} output tokens/s; sustains "
        f"{figures['sustained_rate_per_s']:g} requests/s with p95 TTFT below {ttft_limit:g} s"
        for mode, figures in found.items()
    ]
    static, best = found["static"], found["continuous"]
    times = best["max_output_tokens_per_s"] / static["max_output_tokens_per_s"]
    lines.append(f"continuous over static: {times:.1f} times the output tokens/s")
    if static["sustained_rate_per_s"]:
        times = best["sustained_rate_per_s"] / static["sustained_rate_per_s"]
        lines[-1] += f", {times:.1f} times the sustained requests/s"
    return lines
