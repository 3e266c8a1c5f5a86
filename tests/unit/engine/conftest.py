"""A tokenizer whose ids are bytes, and builders, for the tests of the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from chairlift.engine.front import Front, build_front
from chairlift.models.loader import load_model
from chairlift.tokenization.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def front(successor_model_path: Path) -> Front:
    """Text side of the tiny model whose ids 0-255 are bytes; 256-258 are special."""
    return build_front(load_model(str(successor_model_path)))


@pytest.fixture(scope="session")
def tokenizer(front: Front) -> Tokenizer:
    """Byte-level: the id of an ASCII character is its code."""
    return front.tokenizer
