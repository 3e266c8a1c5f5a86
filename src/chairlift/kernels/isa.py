"""Which instruction set levels the kernels can use here, and which one they do use."""

from __future__ import annotations

from chairlift import _native
from chairlift.errors import ConfigError


def available_isas() -> list[str]:
    """Levels this machine can run, lowest first: ``portable`` always, then e.g. ``avx2``."""
    return _native.available_isas()


def current_isa() -> str:
    """Return the level in use: ``CHAIRLIFT_ISA`` if set and not empty, else the highest.

    Raises:
        ConfigError: ``CHAIRLIFT_ISA`` names a level that does not exist or cannot run here.
    """
    try:
        return _native.current_isa()
    except ValueError as error:
        raise ConfigError(str(error)) from None
