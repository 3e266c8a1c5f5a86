"""The folder where fetched models are kept, and the lock that concurrent pulls take turns with."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chairlift.errors import ModelLoadError

CACHE_VARIABLE = "CHAIRLIFT_CACHE"


def cache_dir() -> Path:
    """Folder of everything Chairlift fetches itself; it may not exist yet.

    ``CHAIRLIFT_CACHE`` if set, else ``chairlift`` under ``XDG_CACHE_HOME`` or ``~/.cache``.
    Models with a Hugging Face id lie in Hugging Face's own cache instead, shared with its tools.

    Raises:
        ModelLoadError: Neither is set and there is no home folder.
    """
    try:
        if own := os.environ.get(CACHE_VARIABLE):
            return Path(own).expanduser()
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "chairlift"
    except RuntimeError:
        raise ModelLoadError(
            f"there is no home folder to keep models in: set {CACHE_VARIABLE} to a folder"
        ) from None


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Make ``folder`` and hold it alone; a second process waits until the first is done.

    The lock ends with the process that holds it, however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def storage_error(error: OSError, folder: Path) -> ModelLoadError:
    """Say in one line why nothing could be kept in ``folder``, and what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelLoadError(
            f"the disk of {folder} is full: free some space, or set {CACHE_VARIABLE} to a folder "
            "on another disk"
        )
    return ModelLoadError(
        f"cannot write to the model cache {folder} ({error.strerror or error}): set "
        f"{CACHE_VARIABLE} to a folder you may write to"
    )
