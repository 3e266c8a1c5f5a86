"""Chairlift: LLM inference with continuous batching.

    >>> from chairlift import LLM, SamplingParams
    >>> LLM().generate("Snow falls", SamplingParams(max_tokens=8))[0].choices[0].text

Names are imported when they are first used, so that ``import chairlift`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chairlift.engine.async_engine import AsyncEngine as AsyncEngine
    from chairlift.engine.llm import LLM as LLM
    from chairlift.errors import ChairliftError as ChairliftError
    from chairlift.outputs import RequestOutput as RequestOutput
    from chairlift.sampling_params import SamplingParams as SamplingParams

__all__ = [
    "LLM",
    "AsyncEngine",
    "ChairliftError",
    "RequestOutput",
    "SamplingParams",
]

_MODULES = {
    "LLM": "chairlift.engine.llm",
    "AsyncEngine": "chairlift.engine.async_engine",
    "ChairliftError": "chairlift.errors",
    "RequestOutput": "chairlift.outputs",
    "SamplingParams": "chairlift.sampling_params",
}
_VERSION_MODULE = "chairlift.version"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module(_VERSION_MODULE).VERSION
    if name not in _MODULES:
        raise AttributeError(f"module 'chairlift' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
