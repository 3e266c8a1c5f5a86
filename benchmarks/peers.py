"""Chairlift and another engine on the same work, in turn, in one run.

Both are loaded once, each in a process of its own. Every round gives each case to one and then to
the other; the one that is not asked sleeps. Medians over the rounds are compared. For example,
with OpenVINO GenAI installed in ``~/openvino`` and a model exported for it:

    python benchmarks/peers.py --peer openvino --peer-python ~/openvino/bin/python \\
        --peer-model ~/smollm2-135m-openvino-fp16

``--peer chairlift`` is another version of Chairlift in its own environment: before and after a
change. Compare only figures of one run, on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workload import DEFAULT_CASES, Case, describe_machine, parse_cases, with_prompts

DRIVERS = Path(__file__).parent / "peers"
PEERS = ("openvino", "chairlift")


@dataclass(slots=True)
class Engine:
    """A driver process and the output rates measured with it, by case, in tokens per second.

    Attributes:
        role: ``ours`` or ``peer``; part of the name, because both may be the same engine.
    """

    role: str
    command: list[str]
    rates: dict[str, list[float]] = field(default_factory=dict)
    name: str = ""
    load_s: float = 0.0
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process and wait until its model is loaded."""
        self.process = subprocess.Popen(
            self.command,
            env=_clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        hello = self._reply()
        self.name, self.load_s = f"{self.role}: {hello['engine']}", hello["load_s"]

    def run(self, case: Case, prompts: list[list[int]]) -> float:
        """Run one batch; return output tokens per second, prefill included."""
        if self.process is None or self.process.stdin is None:
            raise RuntimeError("start() first")
        batch = {"prompts": prompts, "num_output_tokens": case.num_output_tokens}
        print(json.dumps(batch), file=self.process.stdin, flush=True)
        reply = self._reply()
        expected = case.num_requests * case.num_output_tokens
        if reply["num_output_tokens"] != expected:
            sys.exit(f"{self.name} gave {reply['num_output_tokens']} tokens, not {expected}")
        rate = float(reply["num_output_tokens"] / reply["wall_s"])
        self.rates.setdefault(str(case), []).append(rate)
        return rate

    def stop(self) -> None:
        """End the process."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()

    def _reply(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process and self.process.stdout else ""
        if not line:
            sys.exit(f"{' '.join(self.command)} ended without an answer")
        reply: dict[str, Any] = json.loads(line)
        return reply


def _clean_environment() -> dict[str, str]:
    """Without what tells other libraries how many threads to use: each engine decides itself."""
    prefixes = ("OPENBLAS_", "OMP_", "MKL_")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}


def compare(ours: Engine, peer: Engine, cases: list[Case], num_rounds: int) -> None:
    """Give every case to both engines in turn, in each round the other one first."""
    batches = list(with_prompts(cases))
    for round_number in range(num_rounds):
        order = (ours, peer) if round_number % 2 == 0 else (peer, ours)
        for case, prompts in batches:
            rates = {engine.name: f"{engine.run(case, prompts):.1f}" for engine in order}
            print(f"round {round_number + 1}, {case}: {rates}", file=sys.stderr)


def report(ours: Engine, peer: Engine, cases: list[Case]) -> None:
    """Print one JSON line per case: medians, all rates, and how many times ours is the peer's."""
    for case in cases:
        rates = {engine.name: engine.rates[str(case)] for engine in (ours, peer)}
        medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
        print(
            json.dumps(
                {
                    "requests": case.num_requests,
                    "prompt_tokens": case.num_prompt_tokens,
                    "output_tokens": case.num_output_tokens,
                    "output_tokens_per_s": medians,
                    "ratio": round(medians[ours.name] / medians[peer.name], 3),
                    "all": {name: [round(v, 1) for v in values] for name, values in rates.items()},
                }
            )
        )


def main() -> None:
    """Read the command line, run both engines, print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m", help="Chairlift's model")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--peer", default="openvino", choices=PEERS)
    parser.add_argument("--peer-python", required=True, help="interpreter that has the peer")
    parser.add_argument("--peer-model", required=True, help="the same model, for the peer")
    parser.add_argument("--cases", default=DEFAULT_CASES, type=parse_cases)
    parser.add_argument("--rounds", default=3, type=int)
    args = parser.parse_args()

    print(json.dumps(describe_machine()), flush=True)
    our_driver, peer_driver = (
        str(DRIVERS / f"{name}_driver.py") for name in ("chairlift", args.peer)
    )
    ours = Engine("ours", [sys.executable, our_driver, args.model, args.dtype])
    peer = Engine("peer", [args.peer_python, peer_driver, os.path.expanduser(args.peer_model)])
    engines = (ours, peer)
    try:
        for engine in engines:
            engine.start()
        compare(ours, peer, args.cases, args.rounds)
    finally:
        for engine in engines:
            engine.stop()
    print(json.dumps({engine.name: {"load_s": engine.load_s} for engine in engines}))
    report(ours, peer, args.cases)


if __name__ == "__main__":
    main()
