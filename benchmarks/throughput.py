"""Output tokens per second of whole batches, and where the time of a step goes.

The same work as in ``peers.py``, for Chairlift alone: all requests of a case at once, prefill
included, greedy, past the end-of-sequence token, without the prefix cache.

    python benchmarks/throughput.py
    python benchmarks/throughput.py --cases 64:64:128 --repeat 5 --dtype float32

Prints one JSON line about the machine and the engine, then one per case. Rates are medians over the
repetitions. ``step`` is the mean step of the median repetition, in milliseconds, by part, and
``share`` each part's share of it; ``rest`` is what is not inside any part: the loop, and in
``LLM.generate`` submitting the requests. ``overhead_share`` is everything but the model and the
sampler.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time

from chairlift import LLM, SamplingParams
from chairlift.engine.stats import StepTimes
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


def main() -> None:
    """Read the command line, load the model, run the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--cases", default=DEFAULT_CASES, type=parse_cases)
    parser.add_argument("--repeat", default=3, type=int)
    parser.add_argument("--num-threads", default=0, type=int, help="0: as many as allowed")
    args = parser.parse_args()

    machine = describe_machine()
    with LLM(
        args.model, dtype=args.dtype, num_threads=args.num_threads, enable_prefix_caching=False
    ) as llm:
        engine = {
            "model": llm.model_name,
            "dtype": llm.info.dtype,
            "isa": llm.info.isa,
            "num_threads": llm.info.num_threads,
            "load_s": round(sum(seconds for _, seconds in llm.info.phases), 3),
        }
        print(json.dumps(machine | engine), flush=True)
        for case, prompts in with_prompts(args.cases, llm.limits.vocab_size):
            repetitions = [run_once(llm, case, prompts) for _ in range(args.repeat)]
            print(json.dumps(report(case, repetitions)), flush=True)


if __name__ == "__main__":
    main()
