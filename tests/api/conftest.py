"""Server processes shared by the tests; each test leaves its server idle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.serving import Server, start_server


def _serve(model: Path, *flags: str) -> Iterator[Server]:
    server = start_server(model, *flags)
    yield server
    code = server.stop()
    if code != 0:
        raise AssertionError(f"the server ended with exit code {code}")


@pytest.fixture(scope="session")
def server(random_model_path: Path) -> Iterator[Server]:
    """Random weights, float32, room for everything, 64 tokens a step."""
    yield from _serve(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "2048", "--max-num-seqs", "16"),
        *("--max-num-batched-tokens", "64"),
    )


@pytest.fixture(scope="session")
def text_server(successor_model_path: Path) -> Iterator[Server]:
    """The model whose text is known."""
    yield from _serve(successor_model_path, "--dtype", "float32", "--num-kv-blocks", "512")


@pytest.fixture(scope="session")
def small_server(random_model_path: Path) -> Iterator[Server]:
    """A KV pool of 8 blocks of 16 tokens under a context of 1024."""
    yield from _serve(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "8", "--block-size", "16"),
        *("--max-model-len", "1024"),
    )


@pytest.fixture(scope="session")
def single_server(random_model_path: Path) -> Iterator[Server]:
    """One request at a time, and twelve in the queue."""
    yield from _serve(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "2048", "--max-num-seqs", "1"),
        *("--max-num-waiting", "12"),
    )


@pytest.fixture
def impatient_server(random_model_path: Path) -> Iterator[Server]:
    """One request at a time; who waits longer than 0.3 s for its start is sent away."""
    yield from _serve(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "512", "--max-num-seqs", "1"),
        *("--max-queue-time", "0.3"),
    )


@pytest.fixture
def prompt_server(random_model_path: Path) -> Iterator[Server]:
    """One request at a time, and nobody who would start later than in 50 ms."""
    yield from _serve(
        random_model_path,
        *("--dtype", "float32", "--num-kv-blocks", "512", "--max-num-seqs", "1"),
        *("--target-ttft", "0.05"),
    )
