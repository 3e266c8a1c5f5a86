"""Output tokens per second over HTTP against the same work in process, in turn.

At each concurrency, so many streaming completions at once from a light client in another process,
and then the same prompts as one ``LLM.generate``; repeated, so that whatever else the machine does
falls on both. Prompts of 64 random token ids, 128 output tokens, greedy, past the end-of-sequence
token, prefix cache off. Server, engine and client share the cores.

    python benchmarks/http_throughput.py
    python benchmarks/http_throughput.py --concurrency 64 --repeat 5

Prints one JSON line about the machine and one per concurrency. ``ratio`` is the median of the
repetitions' ratios of HTTP to in-process throughput. ``*_cpu_us_per_token`` is user and system time
of a process per output token: of the process that speaks HTTP, of the engine's, and of the client;
they hold where wall times do not because others use the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from chairlift import LLM, SamplingParams
from startup import start_server
from workload import Case, describe_machine, with_prompts

NUM_PROMPT_TOKENS = 64
_UTIME, _STIME = 11, 12  # fields of /proc/PID/stat behind the name


@dataclasses.dataclass(frozen=True, slots=True)
class HttpRound:
    """One round over HTTP: seconds of it, and CPU seconds of each process."""

    wall_s: float
    api_cpu_s: float
    engine_cpu_s: float
    client_cpu_s: float
    num_reads: int


class HttpSide:
    """A server, and the process that asks it."""

    def __init__(self, model: str) -> None:
        self._server, _, self._port, _ = start_server(model)
        pid = self._server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        self._pids = (pid, int(children[0]))
        self._client = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("stream_client.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run_once(self, case: Case, prompts: list[list[int]]) -> HttpRound:
        """Stream all requests of a case at once.

        Raises:
            RuntimeError: The server gave another number of tokens than asked for, or the client
                failed.
        """
        if self._client.stdin is None or self._client.stdout is None:
            raise RuntimeError("the client has no pipes")
        bodies = [_body(prompt, case.num_output_tokens) for prompt in prompts]
        order = json.dumps({"port": self._port, "bodies": bodies})
        before = [_cpu_s(pid) for pid in self._pids]
        self._client.stdin.write(order + "\n")
        self._client.stdin.flush()
        answer = json.loads(self._client.stdout.readline() or "{}")
        after = [_cpu_s(pid) for pid in self._pids]
        expected = case.num_requests * case.num_output_tokens
        if answer.get("num_tokens") != expected:
            raise RuntimeError(f"case {case} gave {answer}, not {expected} tokens")
        api_s, engine_s = (late - early for early, late in zip(before, after, strict=True))
        return HttpRound(answer["wall_s"], api_s, engine_s, answer["cpu_s"], answer["num_reads"])

    def close(self) -> None:
        """End both."""
        if self._client.stdin is not None:
            self._client.stdin.close()
        self._client.wait()
        self._server.send_signal(signal.SIGTERM)
        self._server.wait()


def run_in_process(llm: LLM, prompts: list[list[int]], num_output_tokens: int) -> float:
    """Seconds that the same requests take without HTTP."""
    params = SamplingParams(max_tokens=num_output_tokens, temperature=0.0, ignore_eos=True)
    start_s = time.perf_counter()
    llm.generate(prompts, params)
    return time.perf_counter() - start_s


def report(case: Case, pairs: list[tuple[HttpRound, float]]) -> dict[str, object]:
    """Put the figures of a concurrency together."""
    num_tokens = case.num_requests * case.num_output_tokens
    rounds = [http for http, _ in pairs]

    def cpu_us(name: str) -> float:
        return round(statistics.median(getattr(r, name) for r in rounds) / num_tokens * 1e6, 1)

    return {
        "concurrency": case.num_requests,
        "http_tokens_per_s": round(num_tokens / statistics.median(r.wall_s for r in rounds), 1),
        "offline_tokens_per_s": round(num_tokens / statistics.median(s for _, s in pairs), 1),
        "ratio": round(statistics.median(s / http.wall_s for http, s in pairs), 3),
        "ratios": [round(s / http.wall_s, 3) for http, s in pairs],
        "api_cpu_us_per_token": cpu_us("api_cpu_s"),
        "engine_cpu_us_per_token": cpu_us("engine_cpu_s"),
        "client_cpu_us_per_token": cpu_us("client_cpu_s"),
        "tokens_per_read": round(num_tokens / statistics.median(r.num_reads for r in rounds), 2),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _body(prompt: list[int], num_output_tokens: int) -> str:
    return json.dumps(
        {
            "prompt": prompt,
            "max_tokens": num_output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Read the command line, load both sides, run them in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--concurrency", default=[16, 64, 128], type=int, nargs="+")
    parser.add_argument("--output-tokens", default=128, type=int)
    parser.add_argument("--repeat", default=3, type=int)
    args = parser.parse_args()
    print(json.dumps(describe_machine()), flush=True)
    cases = [Case(n, NUM_PROMPT_TOKENS, args.output_tokens) for n in args.concurrency]
    http = HttpSide(args.model)
    try:
        with LLM(args.model, enable_prefix_caching=False, memory_utilization=0.2) as llm:
            for case, prompts in with_prompts(cases, llm.limits.vocab_size):
                pairs = [
                    (
                        http.run_once(case, prompts),
                        run_in_process(llm, prompts, case.num_output_tokens),
                    )
                    for _ in range(args.repeat)
                ]
                print(json.dumps(report(case, pairs)), flush=True)
    finally:
        http.close()


if __name__ == "__main__":
    main()
