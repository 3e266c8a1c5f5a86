"""Typed, bounded access to the loosely typed tables that model files are described with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.errors import ModelLoadError

# No real model comes near; they keep a broken file from making us count to 2**64.
MAX_SIZE = 1 << 31
MAX_HEAD_DIM = 1 << 14
_MAX_NUMBER = 1e30


@dataclass(frozen=True, slots=True)
class Fields:
    """A table of a model file; every getter raises a one-line ``ModelLoadError``.

    A value of None (JSON's null) counts as absent.

    Attributes:
        path: The file, for messages.
        prefix: Put before every key when it is looked up.
    """

    path: Path
    values: Mapping[str, Any]
    prefix: str = ""

    def get(self, key: str) -> Any:
        """The value as it is, or None."""
        return self.values.get(self.prefix + key)

    def has(self, key: str) -> bool:
        """Whether the key is there and not None."""
        return self.get(key) is not None

    def integer(
        self, key: str, default: int | None = None, *, least: int = 1, most: int = MAX_SIZE
    ) -> int:
        """An integer within bounds; ``default`` when absent, an error when that is None."""
        value = self._or_default(key, default)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, f"an integer between {least} and {most}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A finite number greater than ``above``."""
        value = self._or_default(key, default)
        if type(value) not in (int, float) or not above < value < _MAX_NUMBER:
            raise self.wrong(key, f"a finite number above {above:g}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """A boolean."""
        value = self._or_default(key, default)
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._or_default(key, default)
        if type(value) is not str:
            raise self.wrong(key, "a string")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None when absent."""
        return self.text(key) if self.has(key) else None

    def optional_boolean(self, key: str) -> bool | None:
        """A boolean, or None when absent."""
        return self.boolean(key, False) if self.has(key) else None

    def table(self, key: str) -> Fields:
        """A nested table; empty when absent."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.wrong(key, "a table")
        return Fields(self.path, value)

    def wrong(self, key: str, wanted: str) -> ModelLoadError:
        """The error for a field whose value is not what is ``wanted``."""
        shown = repr(self.get(key))
        if len(shown) > 60:
            shown = shown[:57] + "..."
        return ModelLoadError(f"{self.prefix + key} of {self.path} must be {wanted}, got {shown}")

    def _or_default(self, key: str, default: Any) -> Any:
        value = self.get(key)
        if value is None and default is None:
            raise ModelLoadError(
                f"{self.path} lacks the field {self.prefix + key}: the model's description is "
                "incomplete, download it again"
            )
        return default if value is None else value
