"""``chairlift simulate``: latencies and throughput of an engine that is not there."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chairlift.cli.arguments import JsonOption
from chairlift.cli.study_options import (
    scheduler_options,
    simulated_engine_options,
    tenant_options,
    workload_options,
)
from chairlift.config import SchedulerConfig
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.routing import RoutingPolicy
from chairlift.simulate.tenants import TenantOptions
from chairlift.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from chairlift.simulate.simulator import SimulationResult
    from chairlift.simulate.tenants import TenantResult


@workload_options()
@tenant_options()
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
    tenants: TenantOptions,
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
      chairlift simulate --scheduling-policy fair --tenant-mix gold=1,free=3
      chairlift bench calibrate --output mine.json && chairlift simulate --cost-model mine.json
    """
    from chairlift.simulate.simulator import simulate as run

    mix = tenants.load()
    workload = mix.assign(work.build(), work.seed)
    setup = engine.setup(scheduler, mix.tenants)
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
        "requests_refused_by_quota": result.num_refused_by_quota,
        "duration_s": round(result.duration_s, 6),
        "requests_per_s": round(result.request_throughput_per_s, 4),
        "output_tokens_per_s": round(result.output_throughput_per_s, 3),
        "prompt_tokens": result.num_prompt_tokens,
        "output_tokens": result.num_output_tokens,
        "preemptions": result.num_preemptions,
        "prefix_cache_hit_rate": round(result.prefix_cache_hit_rate, 4),
        "steps": list(result.replica_steps),
        "latency_ms": summaries_ms(result.summaries()),
        "tenants": {tenant.name: _tenant_figures(tenant, result) for tenant in result.tenants},
        "simulation_took_s": round(took_s, 3),
    }


def _tenant_figures(tenant: TenantResult, result: SimulationResult) -> dict[str, Any]:
    from chairlift.workload.report import summaries_ms

    return {
        "requests": tenant.num_requests,
        "requests_finished": len(tenant.times),
        "requests_refused": tenant.num_refused,
        "requests_refused_by_quota": tenant.num_refused_by_quota,
        "output_tokens": tenant.num_output_tokens,
        "output_tokens_per_s": round(tenant.output_throughput_per_s(result.duration_s), 3),
        "latency_ms": summaries_ms(tenant.summaries()),
    }


def lines(result: SimulationResult, took_s: float) -> list[str]:
    """The same figures for people to read."""
    from chairlift.workload.report import latency_table

    return [
        f"{len(result.times):,} requests finished, {result.num_refused:,} refused, "
        + (f"{result.num_refused_by_quota:,} refused by quotas, " if result.tenants else "")
        + f"{result.num_preemptions:,} preemptions, in {result.duration_s:,.1f} simulated seconds",
        f"{result.request_throughput_per_s:,.2f} requests/s, "
        f"{result.output_throughput_per_s:,.1f} output tokens/s, "
        f"{sum(result.replica_steps):,} steps, "
        f"{result.prefix_cache_hit_rate:.1%} of the prompt tokens found in the prefix cache",
        "",
        *latency_table(result.summaries()),
        "",
        *_tenant_lines(result),
        f"Simulated in {took_s:.1f} s",
    ]


def _tenant_lines(result: SimulationResult) -> list[str]:
    """A table of what each tenant got; nothing without tenants."""
    from chairlift.workload.report import text_table

    if not result.tenants:
        return []
    metrics, percents = ("ttft", "tpot", "queue"), (50.0, 95.0)
    head = ["tenant", "requests", "refused", "by quota", "output tokens/s"]
    head += [f"{metric} p{p:g}" for metric in ("TTFT", "TPOT", "queue") for p in percents]
    rows = [head]
    for tenant in result.tenants:
        summaries = tenant.summaries(percents)
        values_s = [summaries[metric].percentile(p) for metric in metrics for p in percents]
        rows.append(
            [
                tenant.name,
                *(f"{n:,}" for n in (tenant.num_requests, tenant.num_refused)),
                f"{tenant.num_refused_by_quota:,}",
                f"{tenant.output_throughput_per_s(result.duration_s):,.1f}",
                *("-" if math.isnan(value) else f"{value * 1e3:,.1f}" for value in values_s),
            ]
        )
    return ["Of each tenant, latencies in milliseconds:", *text_table(rows), ""]
