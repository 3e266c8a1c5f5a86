"""Output tokens per second of whole batches, and where the time of a step goes.

The same work as in ``peers.py``, for Chairlift alone: all requests of a case at once, prefill
included, greedy, past the end-of-sequence token, without the prefix cache.

    python benchmarks/throughput.py
    python benchmarks/throughput.py --cases 64:64:128 --repeat 5 --dtype float32
    python benchmarks/throughput.py --cases many,long --repeat 1

Takes every setting of the engine as a flag too; it runs as many requests at once as the largest
case has. Prints one JSON line about the machine and the engine, then one per case.

Rates are medians over the repetitions. ``step`` is the mean step of the median repetition, in
milliseconds, by part, and ``share`` each part's share of it; ``rest`` is what is not inside any
part: the loop, and in ``LLM.generate`` submitting the requests. ``overhead_share`` is everything
but the model and the sampler. ``memory_mb`` has what the process holds once it has started
(``resident``), of that the weights and the rest (``overhead``), and the size of the KV pool, which
comes to it as it is used; ``most_resident_mb`` of a case is the most held until its end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

from chairlift import LLM, SamplingParams
from chairlift.config import SchedulerConfig
from chairlift.engine.stats import StepTimes
from engine_flags import add_engine_flags, engine_options
from workload import DEFAULT_CASES, Case, describe_machine, parse_cases, with_prompts

PARTS = ("schedule", "build", "forward", "logits", "sample", "update", "output")
MODEL_PARTS = ("forward", "logits", "sample")


@dataclasses.dataclass(frozen=True, slots=True)
class Repetition:
    """One run of a case: how long it took, and the times of its steps."""

    wall_s: float
    times: StepTimes


def run_once(llm: LLM, case: Case, prompts: list[list[int]]) -> Repetition:
    """Run all requests of a case at once.

    Raises:
        RuntimeError: The engine gave another number of tokens than asked for.
    """
    params = SamplingParams(max_tokens=case.num_output_tokens, temperature=0.0, ignore_eos=True)
    before = llm.stats().step_times
    start_s = time.perf_counter()
    outputs = llm.generate(prompts, params)
    wall_s = time.perf_counter() - start_s
    num_tokens = sum(output.num_output_tokens for output in outputs)
    expected = case.num_requests * case.num_output_tokens
    if num_tokens != expected:
        raise RuntimeError(f"case {case} gave {num_tokens} tokens, not {expected}")
    return Repetition(wall_s, llm.stats().step_times.since(before))


def report(case: Case, repetitions: list[Repetition]) -> dict[str, object]:
    """Put the figures of a case together."""
    median_s = statistics.median(repetition.wall_s for repetition in repetitions)
    typical = min(repetitions, key=lambda repetition: abs(repetition.wall_s - median_s))
    times, num_steps = typical.times, typical.times.num_steps
    parts_s = {part: getattr(times, f"{part}_s") for part in PARTS}
    parts_s["rest"] = typical.wall_s - sum(parts_s.values())
    overhead_s = sum(value for part, value in parts_s.items() if part not in MODEL_PARTS)
    num_output_tokens = case.num_requests * case.num_output_tokens
    num_prompt_tokens = case.num_requests * case.num_prompt_tokens
    return {
        "requests": case.num_requests,
        "prompt_tokens": case.num_prompt_tokens,
        "output_tokens": case.num_output_tokens,
        "output_tokens_per_s": round(num_output_tokens / median_s, 1),
        "prompt_tokens_per_s": round(num_prompt_tokens / median_s, 1),
        "wall_s": [round(repetition.wall_s, 3) for repetition in repetitions],
        "steps": num_steps,
        "step": {part: round(value / num_steps * 1e3, 4) for part, value in parts_s.items()},
        "share": {part: round(value / typical.wall_s, 4) for part, value in parts_s.items()},
        "overhead_share": round(overhead_s / typical.wall_s, 4),
    }


def resident_mb(field: str) -> float:
    """Read this process's memory in MB from the kernel: ``VmRSS`` now, ``VmHWM`` at most so far."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return round(int(line.split()[1]) * 1024 / 1e6, 1)
    raise RuntimeError(f"/proc/self/status has no {field}")


def memory_at_start(llm: LLM) -> dict[str, float]:
    """Split up what the process holds before the first request."""
    resident, weights = resident_mb("VmRSS"), round(llm.info.weight_bytes / 1e6, 1)
    return {
        "weights": weights,
        "overhead": round(resident - weights, 1),
        "resident": resident,
        "kv_pool": round(llm.info.kv_pool_bytes / 1e6, 1),
    }


def settings_for(cases: list[Case], args: argparse.Namespace) -> dict[str, Any]:
    """Give all requests of the largest case room in a step, unless the command line differs."""
    defaults = SchedulerConfig()
    num_seqs = max(defaults.max_num_seqs, *(case.num_requests for case in cases))
    return engine_options(
        args,
        enable_prefix_caching=False,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=max(defaults.max_num_batched_tokens, num_seqs),
    )


def main() -> None:
    """Read the command line, load the model, run the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=DEFAULT_CASES, type=parse_cases)
    parser.add_argument("--repeat", default=3, type=int)
    add_engine_flags(parser)
    args = parser.parse_args()

    machine = describe_machine()
    settings = settings_for(args.cases, args)
    with LLM(**settings) as llm:
        engine = {
            "model": llm.model_name,
            "dtype": llm.info.dtype,
            "isa": llm.info.isa,
            "num_threads": llm.info.num_threads,
            "settings": settings,
            "load_s": round(sum(seconds for _, seconds in llm.info.phases), 3),
            "memory_mb": memory_at_start(llm),
        }
        print(json.dumps(machine | engine), flush=True)
        for case, prompts in with_prompts(args.cases, llm.limits.vocab_size):
            repetitions = [run_once(llm, case, prompts) for _ in range(args.repeat)]
            memory = {"most_resident_mb": resident_mb("VmHWM")}
            print(json.dumps(report(case, repetitions) | memory), flush=True)


if __name__ == "__main__":
    main()
