"""Usual command lines of ``chairlift serve``, read without the library that reads command lines.

Importing that library and describing some fifty flags to it takes a tenth of a start. So what is
plain, flags with one number or text each, is read here. All else is left to it: help, mistakes,
flags given twice or in the environment, flags of several values. What is read here means the same
there (``tests/unit/cli/test_plain_serve.py``).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chairlift.cli.flag_names import NOT_FROM_ENVIRONMENT, flag_name, variable
from chairlift.config import (
    DEFAULT_MODEL,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
)
from chairlift.engine.options import engine_config
from chairlift.errors import ChairliftError
from chairlift.server.settings import ServerSettings

_RECORDS = (ModelConfig, SchedulerConfig, CacheConfig, EngineConfig, ServerSettings)
_WITHOUT_FLAG = frozenset({"model", "scheduler", "cache", "tenants"})
# By annotation: how a value is written, and how it is read.
_NUMBERS = {
    "int": (re.compile("0|[1-9][0-9]{0,17}"), int),
    "float": (re.compile(r"[0-9]+(\.[0-9]+)?"), float),
}


@dataclasses.dataclass(frozen=True, slots=True)
class PlainServe:
    """What a plain command line asks for."""

    engine: EngineConfig
    settings: ServerSettings


def read_plain_serve(words: Sequence[str], environment: Mapping[str, str]) -> PlainServe | None:
    """Read the words after ``serve``.

    Args:
        environment: Variables; if one of them sets a flag, the words are not plain.

    Returns:
        ``None`` if they are not plain, or wrong.
    """
    fields = [field for record in _RECORDS for field in dataclasses.fields(record)]
    flags = {flag_name(field.name): field for field in fields if field.name not in _WITHOUT_FLAG}
    names = {field.name for field in flags.values()} - NOT_FROM_ENVIRONMENT
    if not environment.keys().isdisjoint(map(variable, (*names, "model", "tenants_file"))):
        return None
    try:
        values = _values(words, flags)
        model = values.pop("model", DEFAULT_MODEL)
        server_names = {field.name for field in dataclasses.fields(ServerSettings)}
        settings = {name: values.pop(name) for name in server_names & values.keys()}
        return PlainServe(engine_config(model, **values), ServerSettings(**settings))
    except (_NotPlainError, ChairliftError):
        return None


class _NotPlainError(Exception):
    """The library has to look at this."""


def _values(words: Sequence[str], flags: Mapping[str, dataclasses.Field[Any]]) -> dict[str, Any]:
    """Values by the fields' names; the word that is no flag is the model."""
    values: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        name, value = _flag(word, left, flags) if word.startswith("-") else ("model", word)
        if name in values:
            raise _NotPlainError
        values[name] = value
    return values


def _flag(
    word: str, left: Iterator[str], flags: Mapping[str, dataclasses.Field[Any]]
) -> tuple[str, Any]:
    """Name and value of a flag; takes the next word if that is the value."""
    flag, equals, text = word.partition("=")
    field = flags.get(flag)
    if field is not None and not isinstance(field.default, bool):
        return field.name, _value(field, text if equals else next(left, ""))
    if field is None:  # only what is on can be switched off
        field = flags.get("--" + flag.removeprefix("--no-"))
        if field is None or field.default is not True:
            raise _NotPlainError
    if equals:
        raise _NotPlainError
    return field.name, flag in flags


def _value(field: dataclasses.Field[Any], text: str) -> Any:
    pattern, read = _NUMBERS.get(str(field.type), (None, str))
    if pattern is not None and pattern.fullmatch(text):
        return read(text)
    if pattern is None and isinstance(field.default, str) and text and not text.startswith("-"):
        return text
    raise _NotPlainError
