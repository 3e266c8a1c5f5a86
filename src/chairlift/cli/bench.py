"""``chairlift bench``: measuring servers, batching modes and steps."""

from __future__ import annotations

import typer

from chairlift.cli.bench_calibrate import calibrate
from chairlift.cli.bench_compare import compare
from chairlift.cli.bench_serving import serving
from chairlift.cli.help import GroupedCommand

bench = typer.Typer(
    help="Measure servers under load, batching modes against each other, and the cost of steps.",
    rich_markup_mode=None,
)
for _command in (serving, compare, calibrate):
    bench.command(cls=GroupedCommand)(_command)
