"""``chairlift serve``, ``generate`` and ``chat`` with the default model, as users run them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import Any

import httpx
import openai
import pytest
from tests.api.serving import WAIT_S, Server, start_server
from tests.e2e.reference import CASES, Case

pytestmark = pytest.mark.e2e

FLAGS = (
    *("--dtype", "float32", "--num-kv-blocks", "1024", "--max-num-seqs", "16"),
    *("--shutdown-timeout", "200"),  # a busy machine must not cut the streams that drain
)
CHAIRLIFT = (sys.executable, "-m", "chairlift")
# Chats whose tokens leave no room for rounding, and which end within 64 tokens.
CHATS = [c for c in CASES if c.messages and c.num_certain == 64 and c.text != c.text_to_the_end]
PLAIN = [c for c in CASES if c.prompt.strip() and c.num_certain == 64 and len(c.prompt) < 200]
LONG: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(default_model: str) -> Iterator[Server]:
    """Shared by the tests that leave it running."""
    server = start_server(Path(default_model), *FLAGS)
    yield server
    code = server.stop()
    if code != 0:
        raise AssertionError(f"the server ended with exit code {code}")


@pytest.fixture
def own_server(default_model: str) -> Iterator[Server]:
    """A server that the test may end."""
    server = start_server(Path(default_model), *FLAGS)
    yield server
    server.process.kill()
    server.wait_exit()


def streamed(client: openai.OpenAI, case: Case) -> str:
    """The text of a chat's stream."""
    chunks = client.chat.completions.create(
        model="smollm2-135m", messages=case.messages, temperature=0, stream=True
    )
    return "".join(c.choices[0].delta.content or "" for c in chunks)


def test_chats_are_answered_as_in_the_reference(server: Server) -> None:
    texts = {
        case.name: server.openai.chat.completions.create(
            model="smollm2-135m", messages=case.messages, temperature=0
        )
        .choices[0]
        .message.content
        for case in CHATS[:4]
    }
    assert texts == {case.name: case.text_to_the_end for case in CHATS[:4]}


def test_streamed_chats_are_those_of_the_reference_whatever_else_runs(server: Server) -> None:
    others = [LONG | {"temperature": 1.0, "seed": seed, "max_tokens": 64} for seed in range(4)]
    with ThreadPoolExecutor(len(CHATS) + len(others)) as pool:
        noise = [pool.submit(server.post, "/v1/completions", body) for body in others]
        texts = list(pool.map(lambda case: streamed(server.openai, case), CHATS))
        for other in noise:
            other.result()
    assert texts == [case.text_to_the_end for case in CHATS]


def test_concurrent_requests_get_what_they_get_alone(server: Server) -> None:
    """Token ids and logprobs, greedy and seeded; the prompts share no beginning."""
    bodies = [
        LONG
        | {"prompt": case.prompt_ids[1:], "max_tokens": 24, "logprobs": 2, "return_token_ids": True}
        | {"temperature": 0.8 * (i % 2), "seed": i}
        for i, case in enumerate(CASES[:8])
    ]

    def outcome(body: dict[str, Any]) -> tuple[Any, Any]:
        choice = server.post("/v1/completions", body)["choices"][0]
        return choice["token_ids"], choice["logprobs"]

    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(outcome, bodies))
    assert together == [outcome(body) for body in bodies]


def test_sigterm_lets_all_running_streams_reach_their_end(own_server: Server) -> None:
    def finish() -> tuple[str, str]:
        events = own_server.stream("/v1/completions", LONG)
        next(events)
        started.release()
        *_, last, done = events
        return last["choices"][0]["finish_reason"], done

    started = Semaphore(0)
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(finish) for _ in range(4)]
        for _ in streams:
            assert started.acquire(timeout=WAIT_S)
        own_server.process.terminate()
        assert [stream.result() for stream in streams] == [("length", "[DONE]")] * 4
    assert own_server.wait_exit() == 0


def test_a_killed_engine_fails_streams_and_whole_answers_and_ends_the_server(
    own_server: Server,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(own_server.http.post, "/v1/completions", json=LONG)
        events = own_server.stream("/v1/completions", LONG)
        next(events)
        own_server.wait_until(lambda: own_server.metric("num_requests_running") == 2, "both run")
        os.kill(own_server.engine_pid(), signal.SIGKILL)
        *_, error, done = events
        assert (error["error"]["code"], done) == ("engine_dead", "[DONE]")
        assert whole.result().status_code == 500
        assert whole.result().json()["error"]["code"] == "engine_dead"
    with contextlib.suppress(httpx.TransportError):  # it may have ended already
        assert own_server.http.get("/health").status_code == 503
    assert own_server.process.wait(timeout=10) == 1


def test_a_killed_server_leaves_no_engine_behind(own_server: Server) -> None:
    events = own_server.stream("/v1/completions", LONG)
    next(events)
    engine = own_server.engine_pid()
    own_server.process.kill()
    own_server.wait_until(lambda: not Path(f"/proc/{engine}").exists(), "the engine has ended")
    with contextlib.suppress(httpx.TransportError):
        list(events)


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*CHAIRLIFT, *words], input=stdin, capture_output=True, text=True, timeout=WAIT_S
    )


def test_generate_writes_the_text_of_the_reference(default_model: str) -> None:
    case = PLAIN[0]
    words = ("--temperature", "0", "--max-tokens", "64", "--ignore-eos", "--dtype", "float32")
    done = run("generate", case.prompt, "--no-skip-special-tokens", *words)
    assert (done.stdout, done.returncode) == (case.text + "\n", 0), done.stderr


def test_generate_answers_json_lines_of_a_pipe_in_order(default_model: str) -> None:
    cases = [PLAIN[1], CHATS[0], PLAIN[2]]
    lines = [
        json.dumps({"id": c.name, "messages": c.messages} if c.messages else {"prompt": c.prompt})
        for c in cases
    ]
    words = ("--json", "--input-format", "jsonl", "--temperature", "0", "--dtype", "float32")
    done = run("generate", *words, "--max-tokens", "64", stdin="\n".join(lines))
    texts = [json.loads(line)["choices"][0]["text"] for line in done.stdout.splitlines()]
    assert texts == [case.text_to_the_end for case in cases], done.stderr


def test_chat_answers_a_pipe_as_in_the_reference(default_model: str) -> None:
    case = next(c for c in CHATS if len(c.messages) == 1)
    words = ("--temperature", "0", "--dtype", "float32")
    done = run("chat", *words, stdin=case.messages[0]["content"] + "\n")
    assert (done.stdout, done.returncode) == (case.text_to_the_end + "\n", 0), done.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("no-such-model",), "no-such-model"),
        (("./no/such/file.gguf",), "./no/such/file.gguf"),
        ((__file__,), "test_serve.py"),
        (("--max-num-seqs", "0"), "max_num_seqs"),
        (("--max-num-batched-tokens", "many"), "--max-num-batched-tokens"),
        (("--dtype", "int3"), "dtype"),
        (("--max-model-len", "9000"), "8192"),
        (("--num-kv-blocks", "9", "--kv-cache-memory-bytes", "9"), "not both"),
        (("--port", "70000"), "port"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
)
def test_what_cannot_be_served_is_named_in_one_line(
    default_model: str, words: tuple[str, ...], named: str
) -> None:
    done = run("serve", "--port", "0", *words)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("Loading ")]
    assert (done.returncode, len(errors)) == (2, 1), done.stderr
    assert errors[0].startswith("chairlift: error: ")
    assert named in errors[0]
