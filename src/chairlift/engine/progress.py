"""A progress bar for long batches, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress_bar(num_requests: int, *, is_shown: bool) -> Iterator[Advance]:
    """Show how many of the requests are done and how fast tokens come.

    Yields:
        To be called for each finished request with its number of output tokens.
    """
    if not is_shown:
        yield lambda num_tokens: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("requests"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task_id = progress.add_task("Generating", total=num_requests, rate="")
        task = progress.tasks[0]
        num_tokens_so_far = 0

        def advance(num_tokens: int) -> None:
            nonlocal num_tokens_so_far
            num_tokens_so_far += num_tokens
            rate = num_tokens_so_far / max(task.elapsed or 0.0, 1e-9)
            progress.update(task_id, advance=1, rate=f"{rate:.1f} tokens/s")

        yield advance
