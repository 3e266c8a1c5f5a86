"""Time that passes only when somebody says so."""

from __future__ import annotations

from chairlift.errors import ConfigError


class VirtualClock:
    """A clock for a simulated engine; call it for the time in seconds."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """The time now, in seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ConfigError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ConfigError(f"a clock only advances; got {seconds} seconds")
        self._now_s += seconds
