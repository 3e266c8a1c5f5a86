"""``chairlift bench serving``: load on an OpenAI-compatible server, as its clients see it."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chairlift.cli.arguments import JsonOption
from chairlift.cli.study_options import workload_options
from chairlift.errors import ConfigError, EngineError
from chairlift.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from chairlift.bench.serving import ServingResult
    from chairlift.bench.target import Target
    from chairlift.workload.objectives import Objective

_MAX_SEED = 1 << 32


@workload_options(defaults={"num_requests": 100}, skip=("prefix_groups", "prefix_tokens"))
def serving(  # noqa: PLR0913 - one parameter per flag
    *,
    base_url: Annotated[
        str, typer.Option(metavar="URL", help="Where the server is, without /v1.")
    ] = "http://127.0.0.1:8000",
    model: Annotated[
        str, typer.Option("--model", "-m", help="Name of the model; not set: the server's first.")
    ] = "",
    api_key: Annotated[
        str, typer.Option(envvar="OPENAI_API_KEY", show_envvar=False, help="Key of the server.")
    ] = "",
    goodput: Annotated[
        str,
        typer.Option(
            metavar="LIMITS", help="Count requests that keep limits, as in ttft<1s,tpot<50ms."
        ),
    ] = "",
    max_concurrency: Annotated[
        int, typer.Option(help="Requests in flight at most; 0: as many as come.")
    ] = 0,
    prompt_seed: Annotated[
        int,
        typer.Option(help="Of the random prompts; 0: another one for each run, so that no run "
                     "finds the prompts of the one before in the prefix cache."),
    ] = 0,
    vocab_size: Annotated[
        int, typer.Option(help="Prompts are random token ids below this.")
    ] = 30_000,
    ignore_eos: Annotated[
        bool, typer.Option(help="Ask for exactly the output lengths of the workload.")
    ] = True,
    as_json: JsonOption = False,
    work: WorkloadOptions,
) -> None:  # fmt: skip
    """Send a workload to a server and show latencies, throughput and failures.

    Any server with OpenAI's /v1/completions, streaming, token-id prompts and usage in streams can
    be measured. Times are taken here, at the client.

    Examples:

    \b
      chairlift bench serving --rate 4 --num-requests 200
      chairlift bench serving --base-url http://gpu-box:8000 --goodput "ttft<1s,tpot<50ms"
      chairlift bench serving --trace azure.csv --rate 0 --num-requests 500 --json
    """
    from chairlift.bench.http_client import Address, HttpError
    from chairlift.bench.target import Prompts, Target
    from chairlift.workload.objectives import parse_objectives

    if max_concurrency < 0:
        raise ConfigError(f"max_concurrency must be at least 0, got {max_concurrency}")
    if vocab_size < 2:
        raise ConfigError(f"vocab_size must be at least 2, got {vocab_size}")
    limits = parse_objectives(goodput) if goodput else ()
    target = Target(Address.parse(base_url), model, api_key, ignore_eos)
    prompts = Prompts(prompt_seed or secrets.randbelow(_MAX_SEED), vocab_size)
    try:
        result = asyncio.run(_measure(target, work, prompts, max_concurrency))
    except HttpError as error:
        raise EngineError(f"{base_url}: {error}") from None
    shown = figures(result, limits)
    print(json.dumps(shown) if as_json else "\n".join(lines(result, shown, limits)))
    for warning in warnings(result):
        print(f"warning: {warning}", file=sys.stderr)


async def _measure(
    target: Target, work: WorkloadOptions, prompts: Any, max_concurrency: int
) -> ServingResult:
    from dataclasses import replace

    from chairlift.bench.serving import run_load
    from chairlift.bench.target import served_models

    workload = work.build()
    if not target.model:
        names = await served_models(target.address, target.headers)
        target = replace(target, model=names[0])
    with _progress(len(workload)) as advance:
        return await run_load(
            target, workload, prompts, max_concurrency=max_concurrency, on_done=advance
        )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("requests", total=total)
        yield lambda: bar.advance(task)


def figures(result: ServingResult, limits: tuple[Objective, ...]) -> dict[str, Any]:
    """All figures of a run, ready for JSON."""
    from chairlift.workload.objectives import goodput_per_s
    from chairlift.workload.report import summaries_ms

    server = result.server
    shown: dict[str, Any] = {
        "requests_finished": len(result.times),
        "requests_failed": result.num_failed,
        "errors": result.errors,
        "duration_s": round(result.duration_s, 4),
        "requests_per_s": round(result.request_throughput_per_s, 4),
        "output_tokens_per_s": round(result.output_throughput_per_s, 3),
        "prompt_tokens": result.num_prompt_tokens,
        "output_tokens": int(result.times.num_output_tokens.sum()),
        "prefix_cache_hit_rate": round(result.cached_share, 4),
        "latency_ms": summaries_ms(result.summaries()),
        "server_mean_queue_ms": None,
        "server_preemptions": server.num_preemptions if server else None,
    }
    if server and server.mean_queue_s is not None:
        shown["server_mean_queue_ms"] = round(server.mean_queue_s * 1e3, 3)
    if limits:
        shown["goodput_per_s"] = round(goodput_per_s(result.times, limits, result.duration_s), 4)
    return shown


def lines(result: ServingResult, shown: dict[str, Any], limits: tuple[Objective, ...]) -> list[str]:
    """The same figures for people to read."""
    from chairlift.workload.report import latency_table

    text = [
        f"{shown['requests_finished']:,} requests finished, {shown['requests_failed']:,} failed, "
        f"in {result.duration_s:,.1f} s",
        f"{result.request_throughput_per_s:,.2f} requests/s, "
        f"{result.output_throughput_per_s:,.1f} output tokens/s",
    ]
    if limits:
        text.append(
            f"goodput {shown['goodput_per_s']:,.2f} requests/s within " + ",".join(map(str, limits))
        )
    if shown["server_mean_queue_ms"] is not None:
        text.append(
            f"the server says: mean queue time {shown['server_mean_queue_ms']:,.1f} ms, "
            f"{shown['server_preemptions']} preemptions"
        )
    text += [f"failed {count} times: {error}" for error, count in result.errors.items()]
    return [*text, "", *latency_table(result.summaries())]


def warnings(result: ServingResult) -> list[str]:
    """What makes the figures say less than they seem to."""
    from chairlift.bench.serving import CACHED_SHARE_TO_WARN

    found = []
    if result.cached_share > CACHED_SHARE_TO_WARN:
        found.append(
            f"{result.cached_share:.1%} of the prompt tokens came from the server's prefix cache: "
            "times to first token are those of cached prompts. Leave --prompt-seed away, or "
            "restart the server, to measure fresh ones"
        )
    if result.num_failed:
        found.append(f"{result.num_failed} requests failed and are in none of the figures")
    return found
