"""How well ``chairlift simulate`` foretells what ``chairlift serve`` does on this machine.

Starts a server that logs its steps and sends it loads: short ones for calibration and, between
them, those to be compared, at shares of what the server can serve, below and above all of it. Then
it fits a cost model to the steps of the calibration alone, and simulates the other loads with it:

* Requests arrive in the simulation when the client sent them.
* What HTTP adds to the first token is measured in the calibration and added: the mean difference
  between the client's time to first token and the engine's, under a light load.
* Machines change their speed. So each load is simulated twice. ``at_own_speed``: the model is
  scaled by one number, what the steps of the load took over what the model says of them; what
  differs then is the simulation's doing. ``foretold``: it is scaled by the same number of the
  calibrations just before and after, as for a load that is still to come; what differs more than
  before is due to the machine, whose speed changed in between.

One JSON line about the machine, one about the cost model, then one per load with measured and
simulated figures and their difference, and a last one with the largest differences.

    python benchmarks/simulation_accuracy.py
    python benchmarks/simulation_accuracy.py --shares 0.3 0.6 2 --seconds 10

Takes about six minutes. The machine must have nothing else to do: the load average is reported with
every line.
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from chairlift.bench.http_client import Address, read_body
from chairlift.bench.serving import ServingResult, run_load
from chairlift.bench.target import Prompts, Target, served_models
from chairlift.config import SchedulerConfig
from chairlift.core.cost_model import CostModel, StepRecord
from chairlift.simulate.cost_model import fit_cost_model
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.replica import ReplicaSetup
from chairlift.simulate.simulator import SimulationResult, simulate
from chairlift.simulate.step_records import read_step_log
from chairlift.workload.options import WorkloadOptions
from chairlift.workload.workload import Workload
from workload import describe_machine

PROMPT_LENGTHS, OUTPUT_LENGTHS = "lognormal:64,200,512", "lognormal:48,150,400"
FIGURES = (("ttft", 50.0), ("ttft", 95.0), ("tpot", 50.0), ("tpot", 95.0))
MAX_NUM_SEQS = 32


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


@dataclass(frozen=True, slots=True)
class Measured:
    """A load on the server.

    Attributes:
        first_step, last_step: Its steps are these lines of the log, the last one excluded.
        front_s: Mean of the client's time to first token, less the engine's.
    """

    workload: Workload
    result: ServingResult
    first_step: int
    last_step: int
    front_s: float


class Bench:
    """Sends loads to the server, one after the other.

    Args:
        url: Of the server.
        step_log: Where it logs its steps.
    """

    def __init__(self, url: str, step_log: Path, vocab_size: int) -> None:
        self._address = Address.parse(url)
        self._step_log = step_log
        self._vocab_size = vocab_size
        (self._model, *_) = asyncio.run(served_models(self._address, {}))

    def measure(self, work: WorkloadOptions) -> Measured:
        """Send a workload, with prompts that the server has not seen."""
        workload, first_step = work.build(), self._num_steps()
        engine_before_s = self._engine_ttft_s()
        prompts = Prompts(secrets.randbelow(1 << 32), self._vocab_size)
        target = Target(self._address, self._model)
        result = asyncio.run(run_load(target, workload, prompts))
        engine_s = (self._engine_ttft_s() - engine_before_s) / len(workload)
        front_s = float(result.times.ttft_s.mean()) - engine_s
        return Measured(workload, result, first_step, self._num_steps(), front_s)

    def _num_steps(self) -> int:
        with self._step_log.open("rb") as file:
            return sum(1 for _ in file)

    def _engine_ttft_s(self) -> float:
        page = asyncio.run(read_body(self._address, "/metrics", {})).decode()
        found = re.search(r"^chairlift:time_to_first_token_seconds_sum\{.*\} (\S+)$", page, re.M)
        if found is None:
            raise RuntimeError("the server does not say its time to first token")
        return float(found[1])


def calibrate(bench: Bench, work: WorkloadOptions, capacity: float) -> list[Measured]:
    """Light, middling and heavy load, for a few seconds each."""
    loads = ((8, 0.15 * capacity), (32, 0.6 * capacity), (48, math.inf))
    return [
        bench.measure(dataclasses.replace(work, seed=work.seed + i, num_requests=n, rate=rate))
        for i, (n, rate) in enumerate(loads)
    ]


def records_of(step_log: Path, loads: Iterable[Measured]) -> list[StepRecord]:
    """The steps of some loads."""
    return [
        record
        for load in loads
        for record in read_step_log(step_log, load.first_step, load.last_step)
    ]


def level_of(model: CostModel, records: Sequence[StepRecord]) -> float:
    """What steps took over what a model says of them."""
    return sum(r.seconds for r in records) / sum(model.seconds(r.size) for r in records)


def foretell(load: Measured, setup: ReplicaSetup, front_s: float) -> SimulationResult:
    """Simulate a load, its requests arriving when they were sent."""
    sent_s = load.result.times.arrival_s
    workload = load.workload
    if len(sent_s) == len(workload):
        workload = dataclasses.replace(workload, arrival_s=sent_s - sent_s[0])
    result = simulate(workload, setup)
    times = dataclasses.replace(
        result.times,
        first_token_s=result.times.first_token_s + front_s,
        last_token_s=result.times.last_token_s + front_s,
    )
    return dataclasses.replace(result, times=times)


def figures(result: ServingResult | SimulationResult) -> dict[str, float]:
    """What is compared, times in milliseconds."""
    summaries = result.summaries()
    return {"output_tokens_per_s": result.output_throughput_per_s} | {
        f"{name}_p{percent:g}_ms": summaries[name].percentile(percent) * 1e3
        for name, percent in FIGURES
    }


def comparison(
    measured: dict[str, float], simulated: SimulationResult, level: float
) -> dict[str, Any]:
    """Simulated figures, and simulated over measured minus 1."""
    found = figures(simulated)
    return {
        "level": round(level, 4),
        "simulated": rounded(found, 2),
        "difference": rounded({name: found[name] / value - 1 for name, value in measured.items()}),
    }


def rounded(values: dict[str, float], digits: int = 4) -> dict[str, float]:
    """For printing."""
    return {name: round(value, digits) for name, value in values.items()}


def worst_of(lines: Sequence[dict[str, Any]], kind: str) -> dict[str, float]:
    """The largest difference of each figure."""
    differences: list[dict[str, float]] = [line[kind]["difference"] for line in lines]
    return {name: max(abs(each[name]) for each in differences) for name in differences[0]}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.15, 0.3, 0.45, 0.6, 0.7, 1.6, 2.2]
    )
    parser.add_argument("--num-requests", type=int, default=100, help="of a load, at least")
    parser.add_argument("--seconds", type=float, default=20.0, help="of arrivals, at least")
    parser.add_argument("--num-kv-blocks", type=int, default=4096)
    parser.add_argument("--vocab-size", type=int, default=40_000)
    return parser.parse_args()


def main() -> None:
    """Measure everything, then fit, simulate and compare."""
    args = arguments()
    print(json.dumps(describe_machine()), flush=True)
    work = WorkloadOptions(prompt_lengths=PROMPT_LENGTHS, output_lengths=OUTPUT_LENGTHS)
    step_log = Path(tempfile.mkdtemp()) / "steps.jsonl"
    calibrations, loads, averages = [], [], []
    with serve(args.model, args.num_kv_blocks, step_log) as url:
        bench = Bench(url, step_log, args.vocab_size)
        full = bench.measure(dataclasses.replace(work, seed=99, num_requests=150, rate=math.inf))
        capacity = full.result.request_throughput_per_s
        calibrations.append(calibrate(bench, dataclasses.replace(work, seed=100), capacity))
        for number, share in enumerate(args.shares, start=1):
            rate = round(share * capacity, 3)
            num_requests = max(args.num_requests, math.ceil(rate * args.seconds))
            loads.append(
                bench.measure(dataclasses.replace(work, rate=rate, num_requests=num_requests))
            )
            averages.append(os.getloadavg()[0])
            other = dataclasses.replace(work, seed=100 + 10 * number)
            calibrations.append(calibrate(bench, other, capacity))
    fit = fit_cost_model(records_of(step_log, chain.from_iterable(calibrations)))
    front_s = sum(c[0].front_s for c in calibrations) / len(calibrations)
    found = {"capacity_per_s": round(capacity, 2), "front_ms": round(front_s * 1e3, 2)}
    print(json.dumps(dataclasses.asdict(fit) | found), flush=True)
    engine = EngineOptions(num_kv_blocks=args.num_kv_blocks)
    setup = engine.setup(SchedulerConfig(max_num_seqs=MAX_NUM_SEQS))
    lines = []
    for number, (share, load) in enumerate(zip(args.shares, loads, strict=True)):
        measured = figures(load.result)
        speeds = {
            "at_own_speed": [load],
            "foretold": calibrations[number] + calibrations[number + 1],
        }
        line: dict[str, Any] = {
            "share_of_capacity": share,
            "load_average": round(averages[number], 2),
            "finished": len(load.result.times),
            "failed": load.result.num_failed,
            "measured": rounded(measured, 2),
        }
        for kind, those in speeds.items():
            level = level_of(fit.model, records_of(step_log, those))
            at_level = dataclasses.replace(setup, cost=fit.model.scaled(level))
            line[kind] = comparison(measured, foretell(load, at_level, front_s), level)
        lines.append(line)
        print(json.dumps(line), flush=True)
    kinds = ("at_own_speed", "foretold")
    print(json.dumps({"largest_difference": {kind: worst_of(lines, kind) for kind in kinds}}))


if __name__ == "__main__":
    main()
