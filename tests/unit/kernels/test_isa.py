"""Choice of the instruction set level."""

from __future__ import annotations

import pytest

from chairlift.errors import ConfigError
from chairlift.kernels.isa import available_isas, current_isa


def test_portable_code_is_always_available() -> None:
    assert available_isas()[0] == "portable"


def test_the_highest_level_is_used_unless_one_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAIRLIFT_ISA", raising=False)
    assert current_isa() == available_isas()[-1]
    monkeypatch.setenv("CHAIRLIFT_ISA", "")
    assert current_isa() == available_isas()[-1]


@pytest.mark.parametrize("isa", available_isas())
def test_the_environment_forces_a_level(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", isa)
    assert current_isa() == isa


def test_a_level_that_cannot_run_is_refused_with_those_that_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", "sve2")
    with pytest.raises(ConfigError, match=r"'sve2' cannot run .*available: portable"):
        current_isa()
