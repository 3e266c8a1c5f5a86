"""Metrics in Prometheus' text format; reads the engine's numbers when asked and keeps none.

Each metric comes twice: under Chairlift's name and, for tools that know them, under vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from chairlift.engine.stats import EngineStats, HistogramSnapshot
from chairlift.engine.step_numbers import PARTS
from chairlift.outputs import FinishReason
from chairlift.server.context import ServerContext

PREFIXES = ("chairlift:", "vllm:")

_LABELS = ["model_name"]


class MetricsPage:
    """The page that ``GET /metrics`` shows; the label ``model_name`` is the first served name.

    Attributes:
        content_type: Media type of the page.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, context: ServerContext) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(context))

    def render(self) -> bytes:
        """The whole page, as of now."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, context: ServerContext) -> None:
        self._engine = context.engine
        self._num_refused = context.door.num_refused
        self._values = [context.model_names[0]]

    def describe(self) -> list[Metric]:
        """Nothing: registering must not ask the engine for numbers."""
        return []

    def collect(self) -> Iterator[Metric]:
        stats = self._engine.stats()
        for prefix in PREFIXES:
            yield from self._gauges(prefix, stats)
            yield from self._counters(prefix, stats)
            yield from self._histograms(prefix, stats)
        yield from self._own(stats)

    def _gauges(self, prefix: str, stats: EngineStats) -> Iterator[Metric]:
        for name, text, value in (
            ("num_requests_running", "Choices in the running set.", stats.num_running),
            (
                "num_requests_waiting",
                "Choices accepted that are not running: waiting or preempted.",
                stats.num_waiting,
            ),
            (
                "kv_cache_usage_perc",
                "Share of the KV pool that requests hold, from 0 to 1.",
                stats.kv_cache_usage,
            ),
            (
                "cpu_cache_usage_perc",
                "Share of the second tier (swap space) in use, from 0 to 1; 0 without one.",
                stats.swap_usage,
            ),
        ):
            family = GaugeMetricFamily(prefix + name, text, labels=_LABELS)
            family.add_metric(self._values, value)
            yield family

    def _counters(self, prefix: str, stats: EngineStats) -> Iterator[Metric]:
        for name, text, value in (
            (
                "num_preemptions",
                "Times a running request lost its KV blocks to another.",
                stats.num_preemptions_total,
            ),
            ("prompt_tokens", "Prompt tokens of started requests.", stats.prompt_tokens_total),
            ("generation_tokens", "Output tokens.", stats.generation_tokens_total),
            (
                "prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache.",
                stats.prefix_cache_queried_tokens,
            ),
            (
                "prefix_cache_hits",
                "Prompt tokens found in the prefix cache.",
                stats.prefix_cache_hit_tokens,
            ),
        ):
            family = CounterMetricFamily(prefix + name, text, labels=_LABELS)
            family.add_metric(self._values, value)
            yield family
        finished = CounterMetricFamily(
            prefix + "request_success",
            "Choices that ended, by finish reason.",
            labels=[*_LABELS, "finished_reason"],
        )
        for reason in FinishReason:
            count = stats.requests_finished.get(reason.value, 0)
            finished.add_metric([*self._values, reason.value], count)
        yield finished

    def _histograms(self, prefix: str, stats: EngineStats) -> Iterator[Metric]:
        for name, text, snapshot in (
            (
                "time_to_first_token_seconds",
                "From arrival to the end of the step with the first token.",
                stats.time_to_first_token_s,
            ),
            (
                "inter_token_latency_seconds",
                "Between the steps of two consecutive tokens of a choice.",
                stats.inter_token_latency_s,
            ),
            (
                "e2e_request_latency_seconds",
                "From arrival to the last token.",
                stats.e2e_latency_s,
            ),
            (
                "request_queue_time_seconds",
                "From arrival to the first step with tokens of the request.",
                stats.queue_time_s,
            ),
            ("request_prompt_tokens", "Prompt tokens per request.", stats.prompt_tokens),
            (
                "request_generation_tokens",
                "Output tokens per choice.",
                stats.generation_tokens,
            ),
        ):
            family = HistogramMetricFamily(prefix + name, text, labels=_LABELS)
            family.add_metric(self._values, _cumulative(snapshot), snapshot.sum)
            yield family

    def _own(self, stats: EngineStats) -> Iterator[Metric]:
        """What vLLM has no name for."""
        blocks = GaugeMetricFamily(
            "chairlift:kv_blocks",
            "KV blocks: live (held by requests), cached (held by nobody, content reusable), free.",
            labels=[*_LABELS, "state"],
        )
        for state, count in (
            ("live", stats.num_live_blocks),
            ("cached", stats.num_cached_blocks),
            ("free", stats.num_free_blocks),
        ):
            blocks.add_metric([*self._values, state], count)
        yield blocks
        swapped = CounterMetricFamily(
            "chairlift:swapped_kv_blocks",
            "KV blocks copied out to the second tier and back in.",
            labels=[*_LABELS, "direction"],
        )
        swapped.add_metric([*self._values, "out"], stats.swapped_out_blocks_total)
        swapped.add_metric([*self._values, "in"], stats.swapped_in_blocks_total)
        yield swapped
        yield self._refused(stats)
        delay = GaugeMetricFamily(
            "chairlift:start_delay_seconds",
            "How long a request at the end of the line would wait, as foretold with target_ttft.",
            labels=_LABELS,
        )
        delay.add_metric(self._values, stats.start_delay_s)
        yield delay
        steps = CounterMetricFamily("chairlift:steps", "Steps computed.", labels=_LABELS)
        steps.add_metric(self._values, stats.step_times.num_steps)
        yield steps
        silence = GaugeMetricFamily(
            "chairlift:engine_silence_seconds",
            "Since the engine was last heard of: long only in a long step, or while its process is "
            "stopped or hangs.",
            labels=_LABELS,
        )
        silence.add_metric(self._values, self._engine.silence_s)
        yield silence
        seconds = CounterMetricFamily(
            "chairlift:step_seconds", "Time of steps, by part.", labels=[*_LABELS, "part"]
        )
        times = stats.step_times
        for part in (*PARTS, "output"):
            seconds.add_metric([*self._values, part], getattr(times, f"{part}_s"))
        yield seconds

    def _refused(self, stats: EngineStats) -> CounterMetricFamily:
        refused = CounterMetricFamily(
            "chairlift:requests_refused",
            "Requests that were turned away, by reason.",
            labels=[*_LABELS, "reason"],
        )
        counts = {"queue_timeout": stats.num_overdue_total} | dict(self._num_refused)
        for reason, count in counts.items():
            refused.add_metric([*self._values, reason], count)
        return refused


def _cumulative(snapshot: HistogramSnapshot) -> list[tuple[str, float]]:
    """Counts up to each bound, as Prometheus writes buckets."""
    bounds = [*map(repr, snapshot.bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(snapshot.counts)), strict=True))
