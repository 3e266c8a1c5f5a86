"""``chairlift simulate``: latencies and throughput of an engine that is not there."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chairlift.cli.arguments import JsonOption
from chairlift.cli.study_options import (
    scheduler_options,
    simulated_engine_options,
    workload_options,
)
from chairlift.config import SchedulerConfig
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.routing import RoutingPolicy
from chairlift.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from chairlift.simulate.simulator import SimulationResult


@workload_options()
@scheduler_options()
@simulated_engine_options()
def simulate(
    *,
    replicas: Annotated[int, typer.Option(help="Engines that share the work.")] = 1,
    routing: Annotated[
        RoutingPolicy,
        typer.Option(
            help="Which engine gets a request: the next in turn, the one with the fewest "
            "requests, or the one that saw its prefix before."
        ),
    ] = "round-robin",
    as_json: JsonOption = False,
    work: WorkloadOptions,
    scheduler: SchedulerConfig,
    engine: EngineOptions,
) -> None:
    """Run a workload through the scheduler on a virtual clock.

    The scheduler is the server's own; only the model is replaced, by a cost model that says how
    long each step takes. A million requests take minutes.

    Examples:

    \b
      chairlift simulate --rate 4 --max-num-seqs 64
      chairlift simulate --trace azure.csv --num-requests 0 --rate 0 --json
      chairlift simulate --rate 40 --replicas 8 --routing least-loaded
      chairlift bench calibrate --output mine.json && chairlift simulate --cost-model mine.json
    """
    from chairlift.simulate.simulator import simulate as run

    workload = work.build()
    setup = engine.setup(scheduler)
    started_s = time.perf_counter()
    result = run(workload, setup, replicas, routing)
    took_s = time.perf_counter() - started_s
    if as_json:
        print(json.dumps(figures(result, took_s)))
    else:
        print("\n".join(lines(result, took_s)))


def figures(result: SimulationResult, took_s: float) -> dict[str, Any]:
    """All figures of a simulation, ready for JSON; times in milliseconds where the name says so."""
    from chairlift.workload.report import summaries_ms

    return {
        "requests_finished": len(result.times),
        "requests_refused": result.num_refused,
        "duration_s": round(result.duration_s, 6),
        "requests_per_s": round(result.request_throughput_per_s, 4),
        "output_tokens_per_s": round(result.output_throughput_per_s, 3),
        "prompt_tokens": result.num_prompt_tokens,
        "output_tokens": result.num_output_tokens,
        "preemptions": result.num_preemptions,
        "prefix_cache_hit_rate": round(result.prefix_cache_hit_rate, 4),
        "steps": list(result.replica_steps),
        "latency_ms": summaries_ms(result.summaries()),
        "simulation_took_s": round(took_s, 3),
    }


def lines(result: SimulationResult, took_s: float) -> list[str]:
    """The same figures for people to read."""
    from chairlift.workload.report import latency_table

    return [
        f"{len(result.times):,} requests finished, {result.num_refused:,} refused, "
        f"{result.num_preemptions:,} preemptions, in {result.duration_s:,.1f} simulated seconds",
        f"{result.request_throughput_per_s:,.2f} requests/s, "
        f"{result.output_throughput_per_s:,.1f} output tokens/s, "
        f"{sum(result.replica_steps):,} steps, "
        f"{result.prefix_cache_hit_rate:.1%} of the prompt tokens found in the prefix cache",
        "",
        *latency_table(result.summaries()),
        "",
        f"Simulated in {took_s:.1f} s",
    ]
