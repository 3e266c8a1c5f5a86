"""What the kernels reach of what this machine can do: products alone, and whole forward steps.

First the machine's own limits are measured: how long a barrier takes, how fast the threads read
memory, how fast they multiply numbers in registers. Then matrix products with weights of each
format, and steps of a model of SmolLM2-135M's shapes (random weights), phase by phase: decode
steps and prefill chunks; no tokenizer, scheduler or sampler is involved. Each stands beside its
floor: the time to read its weights or KV from memory, or to do its multiplications, whichever is
longer. Weights that the caches still hold from the step before, where these are large enough, can
beat the floor. Ends with one JSON line.

    python benchmarks/kernels.py
    python benchmarks/kernels.py --setups gguf --seconds 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from chairlift import _native
from chairlift.kernels.cpu_model import CpuModel
from chairlift.kernels.isa import current_isa
from chairlift.kernels.threads import usable_threads
from chairlift.model_spec import ModelSpec
from kernel_floors import WEIGHT_BYTES, Floor, Machine, arithmetic_of, describe, step_floors
from kernel_setups import (
    ATTENTION_CASES,
    BLOCK_SIZE,
    CASES,
    DEFAULT_SETUPS,
    SETUPS,
    Case,
    make_batch,
    make_model,
    smollm2_spec,
)
from workload import describe_machine

READ_BYTES = 256 << 20
ARITHMETIC = ("float32", "bfloat16", "int8")
PRODUCT_ROWS = (1, 8, 32, 64, 512)
PRODUCT_WEIGHTS = ("bfloat16", "int8", "Q4_1", "Q8_0")
PRODUCT_INPUTS, PRODUCT_FEATURES = 576, 24576


def measure_machine(team: _native.ThreadTeam) -> Machine:
    """Measure memory and arithmetic.

    What products in the caches reach counts as well: the speed of some cores changes from one
    moment to the next.
    """
    peaks = {}
    for kind in ARITHMETIC:
        alone = max(team.peak_rate(kind) for _ in range(5))
        in_cache = max(team.gemm_rate(kind, 256, 256, 512 * team.size, 30) for _ in range(3))
        peaks[kind] = round(max(alone, in_cache) / 1e9, 1)
    return Machine(round(team.read_rate(READ_BYTES) / 1e9, 1), peaks)


def measure_products(team: _native.ThreadTeam, machine: Machine) -> list[dict[str, Any]]:
    """A matrix too large for a core's caches times some rows, for each format of weights."""
    results = []
    size = PRODUCT_INPUTS * PRODUCT_FEATURES
    for weights in PRODUCT_WEIGHTS:
        for rows in PRODUCT_ROWS:
            repeats = max(1, 64 // rows)
            rate = team.gemm_rate(weights, rows, PRODUCT_INPUTS, PRODUCT_FEATURES, repeats)
            floor = machine.floor(
                size * WEIGHT_BYTES[weights], 2 * size * rows, arithmetic_of(weights)
            )
            result: dict[str, Any] = {
                "weights": weights,
                "rows": rows,
                "ms": round(2e3 * size * rows / rate, 4),
                "gops": round(rate / 1e9, 1),
                "floor": asdict(floor),
            }
            print(f"    {weights:8} {rows:4} rows {describe(result['ms'], result['floor'])}")
            results.append(result)
    return results


def run_case(model: CpuModel, spec: ModelSpec, case: Case, seconds: float) -> dict[str, Any]:
    """Repeat a step for about so long; logits are computed for the last token of each sequence."""
    batch = make_batch(case, spec.vocab_size)
    rows = np.arange(case.new - 1, case.num_tokens, case.new, dtype=np.int32)
    logits: npt.NDArray[np.float32] = np.empty((len(rows), spec.vocab_size), np.float32)
    times: list[float] = []
    phases: dict[str, list[float]] = {}
    stop = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < stop:
        model.reset_timers()
        start = time.perf_counter()
        model.forward(batch)
        model.compute_logits(rows, logits)
        times.append(time.perf_counter() - start)
        for phase, duration in model.timers().items():
            phases.setdefault(phase, []).append(duration)
    return {
        "case": case.name,
        "tokens_per_s": round(case.num_tokens / statistics.median(times), 1),
        "best_tokens_per_s": round(case.num_tokens / min(times), 1),
        "step_ms": round(1e3 * statistics.median(times), 3),
        "best_step_ms": round(1e3 * min(times), 3),
        "phases_ms": {name: round(1e3 * statistics.median(s), 3) for name, s in phases.items()},
    }


def run_setup(
    name: str, spec: ModelSpec, machine: Machine, threads: int, seconds: float
) -> list[dict[str, Any]]:
    """Every case of a setup, each printed beside its floors."""
    setup = SETUPS[name]
    model = make_model(spec, setup, threads)
    kv_token_bytes = model.kv_bytes_per_block(BLOCK_SIZE) / BLOCK_SIZE
    results = []
    for case in CASES if setup.all_steps else ATTENTION_CASES:
        floors = step_floors(spec, setup, case, kv_token_bytes, machine)
        if not setup.all_steps:
            floors = {"attention": floors["attention"]}
        result = {"setup": name} | run_case(model, spec, case, seconds) | describe_floors(floors)
        print_case(result, whole=setup.all_steps)
        results.append(result)
    return results


def describe_floors(floors: dict[str, Floor]) -> dict[str, Any]:
    """The floors of a step's phases, and their sum."""
    return {
        "floor_ms": round(sum(floor.ms for floor in floors.values()), 4),
        "floors": {phase: asdict(floor) for phase, floor in floors.items()},
    }


def print_case(result: dict[str, Any], *, whole: bool) -> None:
    """The step's time and rate, then a line per phase: time, floor, and the floor's share of it."""
    step = f"{result['setup']:10} {result['case']:17}"
    if whole:
        step += (
            f"{result['step_ms']:8.3f} ms  floor {result['floor_ms']:8.3f}  "
            f"{result['floor_ms'] / result['step_ms']:4.0%} (best {result['best_step_ms']:.2f} ms, "
            f"{result['tokens_per_s']} tokens/s)"
        )
    print(step)
    for phase, ms in result["phases_ms"].items():
        if phase in result["floors"]:
            print(f"    {phase:10} {describe(ms, result['floors'][phase])}", flush=True)
        elif whole and ms >= 0.002 * result["step_ms"]:
            print(f"    {phase:10} {ms:8.3f} ms", flush=True)


def main() -> None:
    """Read the command line, measure, and print a line per phase and one of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setups", nargs="+", choices=list(SETUPS), default=DEFAULT_SETUPS)
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--layers", type=int, default=30, help="SmolLM2-135M has 30")
    parser.add_argument("--seconds", type=float, default=1.0, help="per case")
    args = parser.parse_args()
    team = _native.ThreadTeam(args.threads)
    machine = measure_machine(team)
    limits = {"barrier_ns": round(team.barrier_ns())} | asdict(machine)
    print(f"{current_isa()}, {args.threads} threads: {limits}", flush=True)
    products = measure_products(team, machine)
    spec = smollm2_spec(args.layers)
    results = []
    for name in args.setups:
        results += run_setup(name, spec, machine, args.threads, args.seconds)
    settings = {"isa": current_isa(), "threads": args.threads, "layers": args.layers}
    report = {"products": products, "results": results}
    print(json.dumps(describe_machine() | settings | limits | report))


if __name__ == "__main__":
    main()
