"""Chairlift and other engines on the same work, in turn, in one run.

Each engine is loaded once, in a process of its own, and stopped (SIGSTOP) while it is not asked.
For each case every round gives the batch to one engine after another, each round beginning with the
next one. Tables have medians, ranges, and ratios to the best peer: the best that stores weights in
the same format, and the best of all. Suites of engines and cases are in ``benchmarks/peers``; the
folder given as ``--dir`` holds the peers' environments and models:

    python benchmarks/peers.py --dir ~/peers benchmarks/peers/smollm2.toml

Several suites are run one after the other. ``--only`` leaves engines out; one that cannot be loaded
is left out, too. Compare only figures of one run, on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from peer_engine import Engine, EngineEndedError, Suite, read_suite
from workload import Case, describe_machine, parse_cases, with_prompts


def measure(engines: Sequence[Engine], cases: list[Case], num_rounds: int, suite: Suite) -> None:
    """Give every case to all engines in turn, round after round."""
    for case, prompts in with_prompts(cases):
        for round_number in range(num_rounds):
            first = round_number % len(engines)
            for engine in (*engines[first:], *engines[:first]):
                if round_number >= (engine.spec.max_rounds or num_rounds):
                    continue
                rate = engine.run(case, prompts, is_cached=suite.is_cached)
                note = f"{case}, round {round_number + 1}, {engine.spec.name}: {rate:.1f}"
                print(note, file=sys.stderr, flush=True)


def as_record(engine: Engine) -> dict[str, object]:
    """All that was measured with an engine."""
    return {
        "engine": engine.spec.name,
        "version": engine.version,
        "format": engine.spec.format,
        "options": engine.spec.options | engine.spec.env,
        "load_s": engine.load_s,
        "tokens_per_s": {
            str(case): [round(rate, 1) for rate in rates] for case, rates in engine.rates.items()
        },
    }


def rate_table(engines: Sequence[Engine], cases: Sequence[Case]) -> list[str]:
    """Rows of medians and ranges, in Markdown."""
    rows = [_row("tokens/s", *(_title(case) for case in cases)), "|---" * (len(cases) + 1) + "|"]
    for engine in engines:
        rates = (engine.rates[case] for case in cases)
        cells = (
            f"{engine.median(case):,.0f} ({min(values):,.0f}-{max(values):,.0f})"
            for case, values in zip(cases, rates, strict=True)
        )
        rows.append(_row(engine.spec.name, *cells))
    return rows


def ratio_table(engines: Sequence[Engine], cases: Sequence[Case]) -> list[str]:
    """Rows of each of our engines over the best peers, in Markdown; none without peers."""
    rows = []
    peers = [engine for engine in engines if engine.spec.is_peer]
    for engine in engines:
        same = [peer for peer in peers if peer.spec.format == engine.spec.format]
        for label, others in ((f"best {engine.spec.format} peer", same), ("best peer", peers)):
            if others and not engine.spec.is_peer:
                cells = (
                    f"{engine.median(case) / max(peer.median(case) for peer in others):.2f}"
                    for case in cases
                )
                rows.append(_row(f"{engine.spec.name} / {label}", *cells))
    head = [_row("ratio", *(_title(case) for case in cases)), "|---" * (len(cases) + 1) + "|"]
    return head + rows if rows else []


def _title(case: Case) -> str:
    kind = "prefill" if case.num_output_tokens == 1 else "output"
    return f"{case.num_requests} x {case.num_prompt_tokens}, {kind}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def run_suite(suite: Suite, only: Sequence[str], cases: list[Case], num_rounds: int) -> None:
    """Load the engines of a suite, run them, end them, print records and tables."""
    specs = [spec for spec in suite.engines if not only or spec.name in only]
    engines: list[Engine] = []
    try:
        for engine in map(Engine, specs):
            try:
                engine.start()
            except EngineEndedError as error:
                engine.stop()
                print(f"left out: {error}", flush=True)
                continue
            engines.append(engine)
            print(f"{engine.spec.name}: loaded in {engine.load_s} s", file=sys.stderr, flush=True)
        measure(engines, cases, num_rounds, suite)
    finally:
        for engine in engines:
            engine.stop()
    for engine in engines:
        print(json.dumps(as_record(engine)))
    tables = ["", *rate_table(engines, cases), "", *ratio_table(engines, cases), ""]
    print("\n".join(tables), flush=True)


def main() -> None:
    """Read the command line and run the suites."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", type=Path, nargs="+")
    parser.add_argument("--dir", default=Path(), type=Path, help="folder of the peers")
    parser.add_argument("--only", default="", help="names of engines, comma-separated")
    parser.add_argument("--cases", type=parse_cases, help="instead of the suite's")
    parser.add_argument("--rounds", default=3, type=int)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the engines are ended, too
    only = args.only.split(",") if args.only else []
    print(json.dumps(describe_machine()), flush=True)
    for path in args.suite:
        suite = read_suite(path, args.dir.expanduser().absolute())
        if unknown := set(only) - {spec.name for spec in suite.engines}:
            parser.error(f"{path} has no engine {', '.join(sorted(unknown))}")
        print(f"\n{path.stem}", flush=True)
        run_suite(suite, only, args.cases or parse_cases(suite.cases), args.rounds)


if __name__ == "__main__":
    main()
