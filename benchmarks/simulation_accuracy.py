"""How well ``chairlift simulate`` foretells what ``chairlift serve`` does on this machine.

Starts a server, fits a cost model to the steps that it logs under two loads of its own, and then
sends one workload to the server and to the simulation at several rates, below and above saturation.
One JSON line about the machine, one about the cost model, then one per rate with measured and
simulated figures and their difference, and a last one with the largest differences.

    python benchmarks/simulation_accuracy.py
    python benchmarks/simulation_accuracy.py --rates 1 2 4 6 8 12 --num-requests 100

The machine must have nothing else to do: the load average is reported with every rate.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chairlift.bench.http_client import Address
from chairlift.bench.serving import ServingResult, run_load
from chairlift.bench.target import Prompts, Target, served_models
from chairlift.config import SchedulerConfig
from chairlift.simulate.cost_model import Fit, fit_cost_model
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.simulator import SimulationResult, simulate
from chairlift.simulate.step_records import read_step_log
from chairlift.workload.options import WorkloadOptions
from workload import describe_machine

PROMPT_LENGTHS, OUTPUT_LENGTHS = "lognormal:64,200,512", "lognormal:48,150,400"
FIGURES = (("ttft", 50.0), ("ttft", 95.0), ("tpot", 50.0), ("tpot", 95.0))
MAX_NUM_SEQS, CALIBRATION_RATE = 32, 3.0


@contextmanager
def serve(model: str, num_kv_blocks: int, step_log: Path) -> Iterator[str]:
    """Run a server on a free port; gives its URL.

    Raises:
        RuntimeError: It ended before it was ready.
    """
    command = [sys.executable, "-m", "chairlift", "serve", model, "--port", "0"]
    command += ["--max-num-seqs", str(MAX_NUM_SEQS), "--num-kv-blocks", str(num_kv_blocks)]
    command += ["--step-log", str(step_log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the server has no output")
        try:
            for line in process.stdout:
                if found := re.match(r"API: (http\S+)/v1", line):
                    yield found[1]
                    return
            raise RuntimeError("the server ended before it was ready")
        finally:
            process.terminate()


async def calibrate(url: str, work: WorkloadOptions, vocab_size: int, step_log: Path) -> Fit:
    """Fit a cost model to the server's own steps under loads that are not those compared later."""
    for rate in (CALIBRATION_RATE, math.inf):
        other = dataclasses.replace(work, seed=work.seed + 1, rate=rate)
        await measure(url, other, vocab_size)
    return fit_cost_model(read_step_log(step_log))


async def measure(url: str, work: WorkloadOptions, vocab_size: int) -> ServingResult:
    """Send a workload to the server, with prompts it has not seen."""
    address = Address.parse(url)
    names = await served_models(address, {})
    prompts = Prompts(secrets.randbelow(1 << 32), vocab_size)
    return await run_load(Target(address, names[0]), work.build(), prompts)


def comparison(rate: float, real: ServingResult, simulated: SimulationResult) -> dict[str, Any]:
    """Measured and simulated figures of one rate, and simulated over measured minus 1."""
    measured: dict[str, float] = {"output_tokens_per_s": real.output_throughput_per_s}
    foretold: dict[str, float] = {"output_tokens_per_s": simulated.output_throughput_per_s}
    summaries = real.summaries(), simulated.summaries()
    for name, percent in FIGURES:
        label = f"{name}_p{percent:g}_ms"
        measured[label], foretold[label] = (
            each[name].percentile(percent) * 1e3 for each in summaries
        )
    return {
        "rate_per_s": rate,
        "finished": len(real.times),
        "failed": real.num_failed,
        "load_average": round(os.getloadavg()[0], 2),
        "measured": {name: round(value, 2) for name, value in measured.items()},
        "simulated": {name: round(value, 2) for name, value in foretold.items()},
        "difference": {
            name: round(foretold[name] / value - 1.0, 4) for name, value in measured.items()
        },
    }


def main() -> None:
    """Read the command line, calibrate, and compare rate by rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 2, 4, 6, 8, 12])
    parser.add_argument("--num-requests", type=int, default=100)
    parser.add_argument("--num-kv-blocks", type=int, default=4096)
    parser.add_argument("--vocab-size", type=int, default=40_000)
    args = parser.parse_args()

    print(json.dumps(describe_machine()), flush=True)
    work = WorkloadOptions(
        num_requests=args.num_requests,
        prompt_lengths=PROMPT_LENGTHS,
        output_lengths=OUTPUT_LENGTHS,
    )
    engine = EngineOptions(num_kv_blocks=args.num_kv_blocks)
    setup = engine.setup(SchedulerConfig(max_num_seqs=MAX_NUM_SEQS))
    step_log = Path(tempfile.mkdtemp()) / "steps.jsonl"
    worst: dict[str, float] = {}
    with serve(args.model, args.num_kv_blocks, step_log) as url:
        fit = asyncio.run(calibrate(url, work, args.vocab_size, step_log))
        setup = dataclasses.replace(setup, cost=fit.model)
        print(json.dumps(dataclasses.asdict(fit)), flush=True)
        for rate in args.rates:
            at_rate = dataclasses.replace(work, rate=rate)
            real = asyncio.run(measure(url, at_rate, args.vocab_size))
            line = comparison(rate, real, simulate(at_rate.build(), setup))
            print(json.dumps(line), flush=True)
            for name, value in line["difference"].items():
                worst[name] = max(worst.get(name, 0.0), abs(value))
    print(json.dumps({"largest_difference": worst}), flush=True)


if __name__ == "__main__":
    main()
