"""Every setting of the engine as a flag of a benchmark, under its own name and default."""

from __future__ import annotations

import argparse
import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from chairlift.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig

RECORDS = (ModelConfig, CacheConfig, SchedulerConfig, EngineConfig)


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each field of the configuration that holds one plain value."""
    group = parser.add_argument_group("engine")
    for record in RECORDS:
        hints = get_type_hints(record)
        for field in dataclasses.fields(record):
            settings = _flag_settings(hints[field.name])
            if settings is None:
                continue
            flag = "--" + field.name.replace("_", "-")
            help_text = f"default: {field.default!r}"
            group.add_argument(flag, default=argparse.SUPPRESS, help=help_text, **settings)


def engine_options(args: argparse.Namespace, **defaults: Any) -> dict[str, Any]:
    """Collect what the command line sets of the engine, by field.

    Args:
        defaults: The benchmark's own, for fields that the command line leaves out.
    """
    names = {field.name for record in RECORDS for field in dataclasses.fields(record)}
    return defaults | {name: value for name, value in vars(args).items() if name in names}


def _flag_settings(annotation: Any) -> Mapping[str, Any] | None:
    """Say how argparse reads a field of that type; ``None``: it is no plain value."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [option for option in get_args(annotation) if option is not type(None)]
        return _flag_settings(inner[0]) if len(inner) == 1 else None
    if get_origin(annotation) is Literal:
        return {"choices": get_args(annotation)}
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if annotation in (int, float, str):
        return {"type": annotation}
    return None
