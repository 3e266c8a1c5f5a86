"""Models with a Hugging Face id, through huggingface_hub and its cache.

The library's own variables hold: ``HF_HOME``, ``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HUB_OFFLINE`` and
the rest. It is imported when it is first needed: a model on disk must not wait for it to load.
"""

from __future__ import annotations

import errno
import importlib
import io
from pathlib import Path
from typing import Any

from chairlift.errors import ModelLoadError
from chairlift.models.hf_folder import missing_files
from chairlift.models.progress import ProgressCallback, PullProgress

# Only what loading reads: repositories also hold other formats of the same weights.
_WANTED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
_NOT_IN_SUBFOLDERS = "*/*"


def find_cached(repository: str, file: str | None) -> Path | None:
    """Find a model in Hugging Face's cache without any network access.

    Args:
        repository: ``org/name``.
        file: A .gguf file of the repository; None for the model in Hugging Face format.

    Returns:
        The file or folder; None if it is not there, or not whole.
    """
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        if file is not None:
            return Path(huggingface_hub.hf_hub_download(repository, file, local_files_only=True))
        folder = Path(
            huggingface_hub.snapshot_download(
                repository,
                local_files_only=True,
                allow_patterns=list(_WANTED),
                ignore_patterns=_NOT_IN_SUBFOLDERS,
            )
        )
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise _explain(error, repository, file) from error
    except OSError:  # what newer versions raise for a cached folder that is not whole
        return None
    return None if missing_files(folder) else folder


def download(repository: str, file: str | None, progress: ProgressCallback | None) -> Path:
    """Download a model, or bring the cached one up to date; see ``find_cached`` for the arguments.

    Raises:
        ModelLoadError: No such model or file, no permission, no network, or a full disk.
    """
    import huggingface_hub

    bar = _bar_class(f"downloading {repository}", progress)
    try:
        if file is not None:
            return Path(huggingface_hub.hf_hub_download(repository, file, tqdm_class=bar))
        folder = Path(
            huggingface_hub.snapshot_download(
                repository,
                allow_patterns=list(_WANTED),
                ignore_patterns=_NOT_IN_SUBFOLDERS,
                tqdm_class=bar,
            )
        )
    # The library lets the errors of its HTTP client through, whatever that client is.
    except Exception as error:
        raise _explain(error, repository, file) from error
    if missing := missing_files(folder):
        raise _incomplete(repository, missing)
    return folder


def _incomplete(repository: str, missing: list[str]) -> ModelLoadError:
    import huggingface_hub

    try:
        files = huggingface_hub.HfApi().list_repo_files(repository)
    except Exception:  # it is only to help with the message
        files = []
    if gguf_files := [name for name in files if name.endswith(".gguf")]:
        return ModelLoadError(
            f"{repository} holds GGUF files: name one of them, such as {repository}:{gguf_files[0]}"
        )
    return ModelLoadError(
        f"{repository} lacks {missing[0]}, so it is not a model in Hugging Face format with "
        "safetensors weights: choose another repository"
    )


def _explain(error: Exception, repository: str, file: str | None) -> ModelLoadError:
    """Say in one line what went wrong at the hub, and what to do about it."""
    from huggingface_hub import constants, errors

    model = repository if file is None else f"{repository}:{file}"
    cause = error.__cause__
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(cause, Exception):
        error = cause
    match error:
        case _ if constants.HF_HUB_OFFLINE:
            reason = (
                "is not in the local cache, and HF_HUB_OFFLINE forbids fetching it: unset that, "
                f"or run 'chairlift pull {model}' on a machine with a network and copy HF_HOME"
            )
        case errors.GatedRepoError():
            reason = "is gated: accept its terms on its page, then set HF_TOKEN to a token of yours"
        case errors.RepositoryNotFoundError():
            reason = "does not exist or is private: check the id, and set HF_TOKEN if it is private"
        case errors.RevisionNotFoundError():
            reason = "has no main branch: choose another repository"
        case errors.EntryNotFoundError() if not isinstance(error, errors.LocalEntryNotFoundError):
            reason = "does not exist in its repository: check the file's name"
        case errors.HFValidationError():
            reason = "is not a valid Hugging Face id: it must be like org/name"
        case errors.HfHubHTTPError() if error.response is not None:
            reason = f"cannot be fetched: the hub answered {error.response.status_code}, try later"
        case OSError() if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "does not fit on the disk: free some space or set HF_HOME to another one"
        case OSError() if error.filename is not None:
            reason = f"cannot be written to {error.filename} ({error.strerror}): set HF_HOME"
        case _:
            reason = (
                f"cannot be fetched from {constants.ENDPOINT} ({_first_line(error)}): check the "
                "network, HF_ENDPOINT and the proxy settings"
            )
    return ModelLoadError(f"{model} {reason}")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _bar_class(what: str, progress: ProgressCallback | None) -> Any:
    """A progress bar that draws nothing and tells ``progress`` about bytes instead."""
    # One of the library's dependencies; its types are not published with it.
    tqdm: Any = importlib.import_module("tqdm").tqdm

    class SilentBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **(kwargs | {"file": io.StringIO(), "disable": False}))

        def display(self, *args: Any, **kwargs: Any) -> None:
            if progress is not None and self.unit == "B" and self.n:
                progress(PullProgress(what, int(self.n), int(self.total) if self.total else None))

    return SilentBar
