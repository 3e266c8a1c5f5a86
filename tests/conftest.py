"""Fixtures shared by all tests: tiny models made once a session."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings
from tests.tiny_gguf import write_random_gguf
from tests.tiny_models import write_random_model, write_successor_model

# A shell that starts a run in the background has it ignore Ctrl-C; tests send it to themselves and
# to processes that inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A machine with other work to do may take long over one example.
settings.register_profile("any_machine", deadline=None)
settings.load_profile("any_machine")


@pytest.fixture(scope="session")
def random_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Llama with random weights (vocabulary 300, 8192 positions)."""
    return write_random_model(tmp_path_factory.mktemp("models") / "tiny-random")


@pytest.fixture(scope="session")
def random_gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GGUF file of a tiny Llama with random weights in several formats (vocabulary 300)."""
    return write_random_gguf(tmp_path_factory.mktemp("models") / "tiny-random.gguf")


@pytest.fixture(scope="session")
def successor_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny Llama whose text is known in advance (``tiny_models.SUCCESSORS``)."""
    return write_successor_model(tmp_path_factory.mktemp("models") / "tiny-successor")
