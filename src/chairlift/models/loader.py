"""From what a user calls a model to the model: the one door of this package."""

from __future__ import annotations

from chairlift.models.gguf_model import load_gguf
from chairlift.models.hf_folder import load_hf_folder
from chairlift.models.loaded_model import GenerationDefaults, LoadedModel, ModelFormat
from chairlift.models.progress import ProgressCallback
from chairlift.models.pull import is_local, locate

__all__ = ["DEFAULT_MODEL", "GenerationDefaults", "LoadedModel", "ModelFormat", "load_model"]

DEFAULT_MODEL = "smollm2-135m"


def load_model(model: str = DEFAULT_MODEL, progress: ProgressCallback | None = None) -> LoadedModel:
    """Find a model, fetching it if needed, and describe it; its weights are mapped, not read.

    Args:
        model: An alias (``smollm2-135m``), the path of a .gguf file or of a folder in Hugging
            Face format, or a Hugging Face id: ``org/name``, or ``org/name:file.gguf``.
        progress: Called while something is downloaded.

    Raises:
        ModelLoadError: The model cannot be found or fetched, is broken, or of a kind that is not
            supported. One line that says what to do.
    """
    path = locate(model, progress)
    name = path.resolve().name.removesuffix(".gguf") if is_local(model) else model
    if path.is_dir():
        return load_hf_folder(path, name)
    return load_gguf(path, name)
