"""What the kernels reach of what this machine can do: the forward step alone, phase by phase.

A model of SmolLM2-135M's shapes (random weights) computes decode steps and prefill chunks; no
tokenizer, scheduler or sampler is involved. Before it the machine's own limits are measured: how
long a barrier takes, how fast the threads read memory, how fast they multiply matrices that stay
in the caches. Ends with one JSON line.

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
from chairlift.kernels.cpu_model import CpuDtype, CpuModel, FlatBatch
from chairlift.kernels.isa import current_isa
from chairlift.kernels.threads import usable_threads
from chairlift.model_spec import ModelSpec, TensorType, WeightTensor, expected_weights
from workload import describe_machine

BLOCK_SIZE = 32
READ_BYTES = 256 << 20
GEMM_ROWS = (1, 8, 32, 64, 512)
LINEAR_PHASES = ("qkv", "o", "gate_up", "down", "head")


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


CASES = (
    *(Case(f"decode {n} x 128", n, 128, 1) for n in (1, 8, 32, 64)),
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


def make_model(spec: ModelSpec, dtype: CpuDtype, num_threads: int) -> CpuModel:
    """The model with random weights and room for every case."""
    model = CpuModel(
        spec,
        dtype=dtype,
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


def run_case(model: CpuModel, spec: ModelSpec, case: Case, seconds: float) -> dict[str, Any]:
    """Repeat a step for about so long; logits are computed for the last token of each sequence."""
    batch = make_batch(case, spec.vocab_size)
    rows = np.arange(case.new - 1, case.num_tokens, case.new, dtype=np.int32)
    logits: npt.NDArray[np.float32] = np.empty((len(rows), spec.vocab_size), np.float32)
    times: list[float] = []
    best_phases: dict[str, float] = {}
    stop = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < stop:
        model.reset_timers()
        start = time.perf_counter()
        model.forward(batch)
        model.compute_logits(rows, logits)
        times.append(time.perf_counter() - start)
        for phase, duration in model.timers().items():
            best_phases[phase] = min(duration, best_phases.get(phase, duration))
    operations = {
        phase: 2 * count * (len(rows) if phase == "head" else case.num_tokens)
        for phase, count in linear_parameters(spec).items()
    }
    return {
        "case": case.name,
        "tokens_per_s": round(case.num_tokens / statistics.median(times), 1),
        "best_tokens_per_s": round(case.num_tokens / min(times), 1),
        "phases_ms": {phase: round(1e3 * s, 3) for phase, s in best_phases.items()},
        "gflops": {p: round(operations[p] / best_phases[p] / 1e9, 1) for p in LINEAR_PHASES},
        "weights_gb_per_s": round(
            model.weight_bytes / sum(best_phases[p] for p in LINEAR_PHASES) / 1e9, 1
        ),
    }


def measure_machine(dtype: CpuDtype, num_threads: int) -> dict[str, Any]:
    """Barrier, memory and arithmetic of this machine with so many threads."""
    team = _native.ThreadTeam(num_threads)
    return {
        "barrier_ns": round(team.barrier_ns()),
        "read_gb_per_s": round(team.read_rate(READ_BYTES) / 1e9, 1),
        "peak_gflops": round(team.gemm_rate(dtype, 32, 256, 64 * num_threads, 5000) / 1e9),
        "gemm_gflops": {
            rows: round(team.gemm_rate(dtype, rows, 576, 24576, max(1, 64 // rows)) / 1e9, 1)
            for rows in GEMM_ROWS
        },
    }


def print_case(result: dict[str, Any]) -> None:
    """One line: rates, and each phase's share of the sum of all phases' best times."""
    phases = result["phases_ms"]
    total = sum(phases.values())
    shares = "  ".join(f"{p} {ms / total:.0%}" for p, ms in phases.items() if ms > 0.005 * total)
    print(
        f"{result['case']:18} {result['tokens_per_s']:8} tokens/s (best "
        f"{result['best_tokens_per_s']}, weights at {result['weights_gb_per_s']} GB/s)  {shares}",
        flush=True,
    )


def main() -> None:
    """Read the command line, measure, and print a line per case and one of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--layers", type=int, default=30, help="SmolLM2-135M has 30")
    parser.add_argument("--seconds", type=float, default=1.0, help="per case")
    args = parser.parse_args()
    machine = measure_machine(args.dtype, args.threads)
    print(f"{current_isa()}, {args.threads} threads, {args.dtype}: {machine}", flush=True)
    spec = smollm2_spec(args.layers)
    model = make_model(spec, args.dtype, args.threads)
    results = []
    for case in CASES:
        results.append(run_case(model, spec, case, args.seconds))
        print_case(results[-1])
    settings = {
        "isa": current_isa(),
        "dtype": args.dtype,
        "threads": args.threads,
        "layers": args.layers,
    }
    print(json.dumps(describe_machine() | settings | machine | {"results": results}))


if __name__ == "__main__":
    main()
