"""From ``chairlift serve`` to the first answers: how long each takes.

Starts the server as a user does, several times, and measures from ``exec`` until it says it is
ready, and then the time to the first token of a first and of a second request. The model is on disk
already. The prefix cache is off, so that the second request has no more to go by than the first;
both come on connections of their own. Prints one JSON line per start and one with medians.

    python benchmarks/startup.py
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import statistics
import subprocess
import sys
import time

from workload import describe_machine

PROMPT = "Write one sentence about snow."


def start_server(model: str) -> tuple[subprocess.Popen[str], float, int, str]:
    """Start the server on a free port; give it back with the seconds it took to be ready.

    Returns:
        The process, the seconds, the port, and the server's own account of the time.
    """
    command = [sys.executable, "-m", "chairlift", "serve", model, "--port", "0"]
    command.append("--no-enable-prefix-caching")
    start_s = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    account = ""
    for line in process.stdout or ():
        if line.startswith("Ready"):
            account = line.strip()
        if line.startswith("API:"):
            port = int(line.rpartition(":")[2].partition("/")[0])
            return process, time.perf_counter() - start_s, port, account
    sys.exit(f"the server ended with code {process.wait()} before it was ready")


def time_to_first_token(port: int) -> float:
    """Send one streamed request and read it to its end.

    Returns:
        Seconds from sending to the first event.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
    }
    start_s = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    response.readline()
    first_s = time.perf_counter() - start_s
    response.read()
    connection.close()
    return first_s


def measure(model: str) -> dict[str, object]:
    """Start, ask twice, stop."""
    process, ready_s, port, account = start_server(model)
    try:
        first_s, second_s = time_to_first_token(port), time_to_first_token(port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return {
        "ready_s": round(ready_s, 3),
        "first_request_ttft_ms": round(first_s * 1e3, 1),
        "second_request_ttft_ms": round(second_s * 1e3, 1),
        "account": account,
    }


def main() -> None:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--repeat", default=5, type=int)
    args = parser.parse_args()
    print(json.dumps(describe_machine()), flush=True)
    runs = []
    for _ in range(args.repeat):
        runs.append(measure(args.model))
        print(json.dumps(runs[-1]), flush=True)
    names = ("ready_s", "first_request_ttft_ms", "second_request_ttft_ms")
    medians = {name: statistics.median(float(str(run[name])) for run in runs) for name in names}
    print(json.dumps({"medians": medians}))


if __name__ == "__main__":
    main()
