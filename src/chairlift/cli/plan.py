"""``chairlift plan``: how many engines a load needs, and with which limits."""

from __future__ import annotations

import json
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
    from chairlift.simulate.planner import Capacity, Fleet, PlanRequest
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
    tried = [
        {
            "max_num_seqs": capacity.max_num_seqs,
            "max_num_batched_tokens": capacity.max_num_batched_tokens,
            "rate_per_replica": round(capacity.rate_per_s, 4),
        }
        for capacity in capacities
    ]
    found: dict[str, Any] = {"rate_per_s": request.rate_per_s, "tried": tried, "fleet": None}
    if fleet is not None:
        named = zip(request.objectives, fleet.values_s, strict=True)
        found["fleet"] = {
            "replicas": fleet.num_replicas,
            "max_num_seqs": fleet.capacity.max_num_seqs,
            "max_num_batched_tokens": fleet.capacity.max_num_batched_tokens,
            "values_ms": {str(objective): round(value * 1e3, 3) for objective, value in named},
        }
    return found


def _lines(request: PlanRequest, capacities: list[Capacity], fleet: Fleet | None) -> list[str]:
    from chairlift.workload.report import text_table

    head = ["limits", "max-num-seqs", "max-num-batched-tokens", "requests/s per engine"]
    rows = [
        [
            "* best" if fleet and fleet.capacity is capacity else "",
            str(capacity.max_num_seqs),
            str(capacity.max_num_batched_tokens),
            f"{capacity.rate_per_s:.2f}" if capacity.rate_per_s else "cannot keep it",
        ]
        for capacity in capacities
    ]
    goal = ",".join(map(str, request.objectives))
    if fleet is None:
        answer = f"No number of engines keeps {goal} with these limits; try others."
    else:
        kept = zip(request.objectives, fleet.values_s, strict=True)
        answer = (
            f"{fleet.num_replicas} engines bear {request.rate_per_s:g} requests/s within {goal}: "
            + ", ".join(f"{str(o).partition('<')[0]} {value * 1e3:,.1f} ms" for o, value in kept)
        )
    return [*text_table([head, *rows]), "", answer]


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
