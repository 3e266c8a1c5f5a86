"""From what a user calls a model to the model: the one door of this package."""

from __future__ import annotations

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
    # Imported here: a start needs one of the two formats.
    if path.is_dir():
        from chairlift.models.hf_folder import load_hf_folder

        return load_hf_folder(path, name)
    from chairlift.models.gguf_model import load_gguf

    return load_gguf(path, name)
