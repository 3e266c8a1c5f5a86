"""What the kernels reach of what this machine can do: the forward step alone, phase by phase.

A model of SmolLM2-135M's shapes (random weights) computes decode steps and prefill chunks; no
tokenizer, scheduler or sampler is involved. Before it the machine's own limits are measured: how
long a barrier takes, how fast the threads read memory, how fast they multiply matrices that stay
in the caches. Each phase stands beside its floor: the time to read its weights or KV from memory,
or to do its multiplications, whichever is longer. Weights that the caches still hold from the step
before, where these are large enough, can beat the floor. Ends with one JSON line.

    python benchmarks/kernels.py --dtype bfloat16
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chairlift import _native
from chairlift.kernels.cpu_model import CpuDtype, CpuModel, FlatBatch, KvCacheDtype
from chairlift.kernels.isa import current_isa
from chairlift.kernels.threads import usable_threads
from chairlift.model_spec import ModelSpec, TensorType, WeightTensor, expected_weights
from workload import describe_machine

BLOCK_SIZE = 32
READ_BYTES = 256 << 20
GEMM_ROWS = (1, 8, 32, 64, 512)
ELEMENT_BYTES: dict[CpuDtype, int] = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Case:
    """One step: so many sequences, each with so many tokens in all, the last ``new`` computed."""

    name: str
    num_seqs: int
    seq_len: int
    new: int

    @property
    def num_tokens(self) -> int:
        return self.num_seqs * self.new


@dataclass(frozen=True, slots=True)
class Floor:
    """What a phase takes at least, in milliseconds, and what keeps it from less."""

    ms: float
    bound: str


CASES = (
    *(Case(f"decode {n} x 128", n, 128, 1) for n in (1, 8, 16, 32, 64, 128)),
    Case("decode 32 x 1024", 32, 1024, 1),
    Case("prefill 8 x 64", 8, 64, 64),
    Case("prefill 1 x 512", 1, 512, 512),
)


def smollm2_spec(num_layers: int) -> ModelSpec:
    """Shapes of SmolLM2-135M, which has 30 layers."""
    return ModelSpec(
        architecture="LlamaForCausalLM",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=num_layers,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        rms_norm_eps=1e-5,
        max_position_embeddings=8192,
        rope_inv_freq=tuple(1e5 ** (-2 * i / 64) for i in range(32)),
        sliding_windows=(0,) * num_layers,
        tie_word_embeddings=True,
    )


def make_model(
    spec: ModelSpec, dtype: CpuDtype, kv_cache_dtype: KvCacheDtype, num_threads: int
) -> CpuModel:
    """The model with random weights and room for every case."""
    model = CpuModel(
        spec,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        num_threads=num_threads,
        max_num_batched_tokens=max(case.num_tokens for case in CASES),
    )
    rng = np.random.default_rng(0)
    for name, shape in expected_weights(spec):
        values = rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
        model.set_weight(
            WeightTensor(name, TensorType.F32, shape, values.reshape(-1).view(np.uint8))
        )
    model.finish_loading()
    model.allocate_kv(max(c.num_seqs * -(-c.seq_len // BLOCK_SIZE) for c in CASES), BLOCK_SIZE)
    return model


def make_batch(case: Case, vocab_size: int) -> FlatBatch:
    """Every sequence has blocks of its own."""
    num_blocks = -(-case.seq_len // BLOCK_SIZE)
    tables = np.arange(case.num_seqs * num_blocks, dtype=np.int32).reshape(case.num_seqs, -1)
    positions = np.arange(case.seq_len - case.new, case.seq_len)
    slots = tables[:, positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE
    return FlatBatch(
        token_ids=np.random.default_rng(1)
        .integers(0, vocab_size, case.num_tokens)
        .astype(np.int32),
        positions=np.tile(positions, case.num_seqs).astype(np.int32),
        query_start_loc=np.arange(case.num_seqs + 1, dtype=np.int32) * np.int32(case.new),
        seq_lens=np.full(case.num_seqs, case.seq_len, np.int32),
        block_tables=tables,
        slot_mapping=(slots + positions % BLOCK_SIZE).reshape(-1),
    )


def linear_parameters(spec: ModelSpec) -> dict[str, int]:
    """Weights that each phase reads in a step, in all layers."""
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layers, hidden, ffn = spec.num_layers, spec.hidden_size, spec.intermediate_size
    return {
        "qkv": layers * hidden * (q + 2 * kv),
        "o": layers * hidden * q,
        "gate_up": layers * hidden * 2 * ffn,
        "down": layers * hidden * ffn,
        "head": spec.vocab_size * hidden,
    }


def attention_work(spec: ModelSpec, case: Case, kv_token_bytes: float) -> tuple[float, int]:
    """Bytes of keys and values that a step reads, and the operations it does with them."""
    first = case.seq_len - case.new
    pairs = case.num_seqs * sum(range(first + 1, case.seq_len + 1))
    return (
        case.num_seqs * case.seq_len * kv_token_bytes,
        spec.num_layers * pairs * 4 * spec.num_heads * spec.head_dim,
    )


def floors(
    spec: ModelSpec,
    case: Case,
    element_bytes: int,
    kv_token_bytes: float,
    machine: dict[str, Any],
) -> dict[str, Floor]:
    """What each phase with a floor takes at least, by phase.

    Args:
        element_bytes: Of a weight.
        kv_token_bytes: Of a token's keys and values in all layers.
    """
    work: dict[str, tuple[float, int]] = {
        phase: (
            count * element_bytes,
            2 * count * (case.num_seqs if phase == "head" else case.num_tokens),
        )
        for phase, count in linear_parameters(spec).items()
    }
    work["attention"] = attention_work(spec, case, kv_token_bytes)
    result = {}
    for phase, (num_bytes, operations) in work.items():
        read_ms = num_bytes / machine["read_gb_per_s"] / 1e6
        compute_ms = operations / machine["peak_gflops"] / 1e6
        bound = "memory" if read_ms > compute_ms else "arithmetic"
        result[phase] = Floor(round(max(read_ms, compute_ms), 3), bound)
    return result


def run_case(
    model: CpuModel, spec: ModelSpec, case: Case, seconds: float, lowest: dict[str, Floor]
) -> dict[str, Any]:
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
        "floor_ms": round(sum(floor.ms for floor in lowest.values()), 3),
        "phases_ms": {name: round(1e3 * statistics.median(s), 3) for name, s in phases.items()},
        "floors_ms": {name: floor.ms for name, floor in lowest.items()},
        "bound_by": {name: floor.bound for name, floor in lowest.items()},
    }


def measure_machine(dtype: CpuDtype, num_threads: int) -> dict[str, Any]:
    """Barrier, memory and arithmetic of this machine with so many threads."""
    team = _native.ThreadTeam(num_threads)
    in_cache = max(team.gemm_rate(dtype, 256, 256, 512 * num_threads, 100) for _ in range(5))
    rates = {
        rows: round(team.gemm_rate(dtype, rows, 576, 24576, max(1, 64 // rows)) / 1e9, 1)
        for rows in GEMM_ROWS
    }
    return {
        "barrier_ns": round(team.barrier_ns()),
        "read_gb_per_s": round(team.read_rate(READ_BYTES) / 1e9, 1),
        "peak_gflops": max(round(in_cache / 1e9, 1), *rates.values()),
        "gemm_gflops": rates,
    }


def print_case(result: dict[str, Any]) -> None:
    """The step's time and rate, then a line per phase: time, floor, and the floor's share of it."""
    print(
        f"{result['case']:17} {result['step_ms']:8.2f} ms (best {result['best_step_ms']:.2f}), "
        f"floor {result['floor_ms']:.2f} ms, {result['tokens_per_s']} tokens/s"
    )
    for phase, ms in result["phases_ms"].items():
        if ms < 0.002 * result["step_ms"]:
            continue
        line = f"    {phase:10} {ms:8.3f} ms"
        if phase in result["floors_ms"]:
            floor_ms = result["floors_ms"][phase]
            line += f"  floor {floor_ms:8.3f}  {floor_ms / ms:4.0%} {result['bound_by'][phase]}"
        print(line, flush=True)


def main() -> None:
    """Read the command line, measure, and print a line per case and one of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument(
        "--kv-cache-dtype", choices=["auto", "float32", "bfloat16", "int8"], default="auto"
    )
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--layers", type=int, default=30, help="SmolLM2-135M has 30")
    parser.add_argument("--seconds", type=float, default=1.0, help="per case")
    args = parser.parse_args()
    machine = measure_machine(args.dtype, args.threads)
    print(f"{current_isa()}, {args.threads} threads, {args.dtype}: {machine}", flush=True)
    spec = smollm2_spec(args.layers)
    model = make_model(spec, args.dtype, args.kv_cache_dtype, args.threads)
    kv_token_bytes = model.kv_bytes_per_block(BLOCK_SIZE) / BLOCK_SIZE
    results = []
    for case in CASES:
        lowest = floors(spec, case, ELEMENT_BYTES[args.dtype], kv_token_bytes, machine)
        results.append(run_case(model, spec, case, args.seconds, lowest))
        print_case(results[-1])
    settings = {
        "isa": current_isa(),
        "dtype": args.dtype,
        "kv_cache_dtype": args.kv_cache_dtype,
        "threads": args.threads,
        "layers": args.layers,
    }
    print(json.dumps(describe_machine() | settings | machine | {"results": results}))


if __name__ == "__main__":
    main()
