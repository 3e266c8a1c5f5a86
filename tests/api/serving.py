"""Runs ``chairlift serve`` as a process and looks at it as users, scrapers and clients do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai

WAIT_S = 60.0


@dataclass
class Server:
    """A running server process.

    Attributes:
        url: Where it listens.
        lines: What it has printed on standard output.
    """

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_S)
        self.openai = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0)

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        """A greedy completion, whole."""
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0} | fields)

    def chat(self, text: str, **fields: Any) -> dict[str, Any]:
        """A greedy answer to one message, whole."""
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0} | fields
        return self.post("/v1/chat/completions", body)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON of an answer that must be a success."""
        answer = self.http.post(path, json=body)
        if answer.status_code != 200:
            raise AssertionError(f"{answer.status_code}: {answer.text}")
        parsed: dict[str, Any] = answer.json()
        return parsed

    def refused(self, path: str, body: dict[str, Any] | bytes) -> dict[str, Any]:
        """The error of a request that must be refused with 400, by a server that lives on."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.http.post(path, content=content)
        if answer.status_code != 400:
            raise AssertionError(f"{answer.status_code}: {answer.text}")
        self.complete("still there?", max_tokens=1)
        error: dict[str, Any] = answer.json()["error"]
        return error

    def stream(self, path: str, body: dict[str, Any]) -> Generator[Any, None, None]:
        """Events of a stream as they come; the end mark as ``"[DONE]"``."""
        with self.http.stream("POST", path, json=body | {"stream": True}) as answer:
            if answer.status_code != 200:
                raise AssertionError(f"{answer.status_code}: {answer.read().decode()}")
            for line in answer.iter_lines():
                if line:
                    content = line.removeprefix("data: ")
                    yield content if content == "[DONE]" else json.loads(content)

    def streamed_text(self, path: str, body: dict[str, Any]) -> str:
        """Joined text of choice 0 of a stream that must end well."""
        *chunks, done = self.stream(path, body)
        if done != "[DONE]":
            raise AssertionError(f"the stream ends with {done}")
        return "".join(
            choice["text"] if "text" in choice else choice["delta"]["content"]
            for chunk in chunks
            for choice in chunk["choices"]
        )

    def metric(self, name: str, **labels: str) -> float:
        """Value of a metric under Chairlift's name."""
        text = self.http.get("/metrics").text
        for line in text.splitlines():
            if line.startswith((f"chairlift:{name}{{", f"chairlift:{name} ")) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name} {labels}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again until ``condition`` holds; it has to within a minute."""
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not so after {WAIT_S:.0f} s: {what}")
            time.sleep(0.01)

    def wait_idle(self) -> None:
        """Wait until nothing runs or waits and no request holds KV blocks."""
        self.wait_until(
            lambda: (
                self.metric("num_requests_running") == 0
                and self.metric("num_requests_waiting") == 0
                and self.metric("kv_blocks", state="live") == 0
            ),
            "idle",
        )

    def engine_pid(self) -> int:
        """Process id of the engine."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (engine,) = children
        return int(engine)

    def stop(self) -> int:
        """End the process and wait for it; the exit code."""
        self.process.terminate()
        return self.wait_exit()

    def wait_exit(self) -> int:
        """Exit code, once the process has ended."""
        try:
            code = self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.http.close()
            self.openai.close()
            if self.process.stdout is not None:
                self.process.stdout.close()
        return code


def start_server(model: Path, *flags: str) -> Server:
    """Start ``chairlift serve`` on a free port; returns once it says that it is ready."""
    command = [sys.executable, "-m", "chairlift", "serve", str(model), "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if process.stdout is None:
        raise AssertionError("no pipe")
    # A server that neither gets ready nor ends must not hang the tests.
    watchdog = threading.Timer(WAIT_S, process.kill)
    watchdog.start()
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("Try:"):
            break
    watchdog.cancel()
    found = re.search(r"^API: +(\S+)/v1$", "\n".join(lines), re.MULTILINE)
    if found is None:
        code = process.wait()
        process.stdout.close()
        raise AssertionError(f"the server ended with {code}: {lines}")
    return Server(process, found[1], lines)
