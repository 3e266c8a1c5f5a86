"""``chairlift plan``: how many engines a load needs, and with which limits."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chairlift.cli.arguments import JsonOption
from chairlift.cli.drawings import PngOption, SvgOption, check_can_draw, write_drawing
from chairlift.cli.study_options import (
    scheduler_options,
    simulated_engine_options,
    tenant_options,
    workload_options,
)
from chairlift.config import SchedulerConfig
from chairlift.errors import ConfigError
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.routing import RoutingPolicy
from chairlift.simulate.tenants import TenantOptions
from chairlift.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from chairlift.simulate.planner import Capacity, Fleet, PlanRequest, Trial
    from chairlift.workload.chart import Chart
    from chairlift.workload.workload import Workload

_PER_S = {"": 1.0, "/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600}


@workload_options(defaults={"num_requests": 500}, skip=("rate",))
@tenant_options()
@scheduler_options(skip=("max_num_seqs", "max_num_batched_tokens"))
@simulated_engine_options()
def plan(  # noqa: PLR0913 - one parameter per flag
    *,
    slo: Annotated[
        str,
        typer.Option(metavar="LIMITS", help="What must be kept, as in ttft_p99<1s,itl_p99<100ms."),
    ],
    rate: Annotated[
        str, typer.Option(metavar="RATE", help="Requests of all users: 500/s, 30/min, 900/h.")
    ],
    max_num_seqs: Annotated[
        str, typer.Option(metavar="N,N,...", help="Values to try.")
    ] = "16,64,256",
    max_num_batched_tokens: Annotated[
        str, typer.Option(metavar="N,N,...", help="Values to try.")
    ] = "256,512,2048",
    routing: Annotated[
        RoutingPolicy, typer.Option(help="How requests are spread over the engines.")
    ] = "round-robin",
    svg: SvgOption = None,
    png: PngOption = None,
    as_json: JsonOption = False,
    work: WorkloadOptions,
    tenants: TenantOptions,
    scheduler: SchedulerConfig,
    engine: EngineOptions,
) -> None:  # fmt: skip
    """Say how many engines keep latency objectives under a load, and with which limits.

    Every pair of --max-num-seqs and --max-num-batched-tokens is simulated at many rates, with the
    server's own scheduler; the fleet of the best pair is simulated as a whole.

    Examples:

    \b
      chairlift plan --slo "ttft_p99<1s,itl_p99<200ms" --rate 20/s
      chairlift plan --slo "tpot_p95<80ms" --rate 20/s --cost-model mine.json --svg plan.svg
    """
    from chairlift.simulate.planner import (
        PlanRequest,
        best_of,
        candidates,
        find_capacity,
        size_fleet,
    )
    from chairlift.workload.chart import charts_svg
    from chairlift.workload.objectives import parse_objectives

    check_can_draw(png)

    mix = tenants.load()

    def make_workload(rate_per_s: float, num_requests: int) -> Workload:
        drawn = replace(work, rate=rate_per_s, num_requests=num_requests).build()
        return mix.assign(drawn, work.seed)

    request = PlanRequest(
        _rate_per_s(rate), parse_objectives(slo), make_workload, work.num_requests, routing
    )
    setups = candidates(
        engine.setup(scheduler, mix.tenants), _numbers("max_num_seqs", max_num_seqs),
        _numbers("max_num_batched_tokens", max_num_batched_tokens),
    )  # fmt: skip
    capacities = []
    for setup in setups:
        capacities.append(find_capacity(request, setup))
        if sys.stderr.isatty():
            print(".", end="", flush=True, file=sys.stderr)
    best = best_of(capacities)
    fleet = size_fleet(request, setups[capacities.index(best)], best) if best else None
    if svg is not None or png is not None:
        charts = _charts(request, best or capacities[0])
        write_drawing(charts_svg(charts), svg, png)
    if as_json:
        print(json.dumps(_figures(request, capacities, fleet)))
    else:
        print("\n".join(_lines(request, capacities, fleet)))


def _rate_per_s(text: str) -> float:
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(/s|/min|/h|)\s*", text)
    if found is None:
        raise ConfigError(f"rate must be a number with /s, /min or /h, got {text!r}")
    return float(found[1]) * _PER_S[found[2]]


def _numbers(name: str, text: str) -> list[int]:
    try:
        return sorted({int(number) for number in text.split(",")})
    except ValueError:
        raise ConfigError(f"{name} must be integers with commas between, got {text!r}") from None


def _figures(
    request: PlanRequest, capacities: list[Capacity], fleet: Fleet | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rate_per_s": request.rate_per_s,
        "objectives": [str(objective) for objective in request.objectives],
        "tried": [
            {
                "max_num_seqs": capacity.max_num_seqs,
                "max_num_batched_tokens": capacity.max_num_batched_tokens,
                "rate_per_replica": round(capacity.rate_per_s, 4),
                "trials": [
                    {
                        "rate_per_s": round(trial.rate_per_s, 4),
                        "is_kept": trial.is_kept,
                        "values_ms": _values_ms(request, trial.values_s),
                    }
                    for trial in capacity.trials
                ],
            }
            for capacity in capacities
        ],
        "fleet": None,
    }
    if fleet is not None:
        found["fleet"] = {
            "replicas": fleet.num_replicas,
            "max_num_seqs": fleet.capacity.max_num_seqs,
            "max_num_batched_tokens": fleet.capacity.max_num_batched_tokens,
            "values_ms": _values_ms(request, fleet.values_s),
        }
    return found


def _values_ms(request: PlanRequest, values_s: tuple[float, ...]) -> dict[str, float | None]:
    """What each objective is about; ``None``: nothing was observed."""
    return {
        str(objective): None if math.isnan(value) else round(value * 1e3, 3)
        for objective, value in zip(request.objectives, values_s, strict=True)
    }


def _lines(request: PlanRequest, capacities: list[Capacity], fleet: Fleet | None) -> list[str]:
    from chairlift.workload.report import text_table

    head = ["", "max-num-seqs", "max-num-batched-tokens", "requests/s per engine"]
    rows = [
        [
            "best" if fleet and fleet.capacity is capacity else "",
            str(capacity.max_num_seqs),
            str(capacity.max_num_batched_tokens),
            f"{capacity.rate_per_s:.2f}" if capacity.rate_per_s else "none within the limits",
        ]
        for capacity in capacities
    ]
    answer = _failure(request, capacities) if fleet is None else _answer(request, fleet)
    return [*text_table([head, *rows]), "", *answer, *_hints(capacities, fleet)]


def _answer(request: PlanRequest, fleet: Fleet) -> list[str]:
    engines = "1 engine bears" if fleet.num_replicas == 1 else f"{fleet.num_replicas} engines bear"
    return [
        f"{engines} {request.rate_per_s:g} requests/s within {_goal(request)}: "
        f"{_told(request, fleet.values_s)}",
        f"chairlift serve --max-num-seqs {fleet.capacity.max_num_seqs} "
        f"--max-num-batched-tokens {fleet.capacity.max_num_batched_tokens}",
    ]


def _failure(request: PlanRequest, capacities: list[Capacity]) -> list[str]:
    """Why there is no answer: how near the nearest limits come, or that only a fleet fails."""
    best = max(capacities, key=lambda capacity: capacity.rate_per_s)
    if best.rate_per_s > 0:
        return [
            f"One engine bears {best.rate_per_s:.2f} requests/s within {_goal(request)}, but no "
            f"fleet of up to half as many again as that asks for bears {request.rate_per_s:g}; "
            "allow more slack, or raise --num-requests."
        ]
    loads = [capacity.trials[0] for capacity in capacities if capacity.trials]
    if not loads:
        return ["No request fits into such an engine; raise --max-model-len or --num-kv-blocks."]
    limits_s = [objective.limit_s for objective in request.objectives]

    def excess(load: Trial) -> float:
        pairs = zip(load.values_s, limits_s, strict=True)
        return max(value / limit_s for value, limit_s in pairs)

    nearest = min(loads, key=excess)
    return [
        f"No number of engines keeps {_goal(request)} with these limits. At hardly any load "
        f"({nearest.rate_per_s:.2g} requests/s) one has at best {_told(request, nearest.values_s)}."
    ]


def _hints(capacities: list[Capacity], fleet: Fleet | None) -> list[str]:
    """Which limits are the best only as far as was tried."""
    if fleet is None:
        return []
    best, hints = fleet.capacity, []
    for flag in ("max_num_seqs", "max_num_batched_tokens"):
        tried = {getattr(capacity, flag) for capacity in capacities}
        if len(tried) > 1 and getattr(best, flag) == max(tried):
            name = flag.replace("_", "-")
            hints.append(f"The best --{name} is the largest tried; a larger one may be better.")
    return hints


def _goal(request: PlanRequest) -> str:
    return ",".join(map(str, request.objectives))


def _told(request: PlanRequest, values_s: tuple[float, ...]) -> str:
    pairs = zip(request.objectives, values_s, strict=True)
    return ", ".join(f"{str(o).partition('<')[0]} {value * 1e3:,.1f} ms" for o, value in pairs)


def _charts(request: PlanRequest, capacity: Capacity) -> list[Chart]:
    from chairlift.workload.chart import Chart, Series

    limits = f"{capacity.max_num_seqs} sequences, {capacity.max_num_batched_tokens} tokens a step"
    return [
        Chart(
            f"{str(objective).partition('<')[0]}, milliseconds ({limits})",
            "requests/s of one engine",
            (
                Series(
                    "one engine",
                    tuple((t.rate_per_s, t.values_s[index] * 1e3) for t in capacity.trials),
                ),
            ),
            limit=objective.limit_s * 1e3,
            is_log=True,
        )
        for index, objective in enumerate(request.objectives)
    ]
