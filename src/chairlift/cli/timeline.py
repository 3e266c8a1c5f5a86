"""``chairlift timeline``: who sits in which slot, under static, dynamic, continuous batching."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chairlift.cli.arguments import JsonOption
from chairlift.cli.drawings import PngOption, SvgOption, write_drawing
from chairlift.errors import ConfigError

if TYPE_CHECKING:
    from chairlift.config import BatchingMode
    from chairlift.simulate.timeline import Timeline, TimelineSpec

DEFAULT_LENGTHS = "2,3,5,4,6,3"


def timeline(  # noqa: PLR0913 - one parameter per flag
    *,
    lengths: Annotated[
        str,
        typer.Option(metavar="N,N,...", help="Output tokens of each request, in order of arrival."),
    ] = DEFAULT_LENGTHS,
    max_num_seqs: Annotated[int, typer.Option(help="Slots: most requests running at once.")] = 3,
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="The step after which each request arrives; 0: before the first. Not set: all "
            "are there at the start.",
        ),
    ] = "",
    window: Annotated[
        int, typer.Option(metavar="STEPS", help="How long dynamic batching waits for a batch.")
    ] = 2,
    modes: Annotated[
        str, typer.Option(metavar="MODE,...", help="Which of static, dynamic and continuous.")
    ] = "static,dynamic,continuous",
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take lengths and arrivals from a trace file (CSV: TIMESTAMP, ContextTokens, "
            "GeneratedTokens) instead.",
        ),
    ] = None,
    step_time: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Seconds of a step, for the times of --workload."),
    ] = 0.05,
    svg: SvgOption = None,
    png: PngOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw who sits in which slot at which step, as the scheduler decides it.

    Each request has a prompt of one token and takes part in as many steps as it has output tokens.
    The same scheduler as in the server runs them under static batching (a batch returns as a
    whole), dynamic batching (the same, but a batch waits for company) and continuous batching.

    Examples:

    \b
      chairlift timeline
      chairlift timeline --lengths 2,3,5,4,6,40 --max-num-seqs 3 --svg timeline.svg
      chairlift timeline --lengths 1,3,2,3 --arrivals 0,0,0,1 --modes continuous --json
    """
    from chairlift.simulate.timeline import TimelineSpec, run_timeline

    if workload is not None:
        spec = _spec_of_trace(workload, step_time, max_num_seqs, window)
    else:
        outputs = _numbers("lengths", lengths)
        steps = _numbers("arrivals", arrivals) if arrivals else (0,) * len(outputs)
        spec = TimelineSpec(outputs, steps, max_num_seqs, window)
    runs = [run_timeline(spec, mode) for mode in _modes(modes)]
    if svg is not None or png is not None:
        from chairlift.simulate.timeline_svg import timelines_svg

        write_drawing(timelines_svg(runs), svg, png)
    if as_json:
        from chairlift.simulate.timeline_json import timelines_as_dict

        print(json.dumps(timelines_as_dict(spec, runs)))
    else:
        _print(runs)


def _print(runs: list[Timeline]) -> None:
    from rich.console import Console

    from chairlift.simulate.timeline_text import draw_timelines

    console = Console(highlight=False)
    console.print(draw_timelines(runs, console.width - 2), soft_wrap=True)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ConfigError(f"{name} must be integers with commas between, got {text!r}") from None


def _modes(text: str) -> list[BatchingMode]:
    from chairlift.simulate.timeline import MODES

    chosen = [mode for mode in MODES if mode in text.split(",")]
    unknown = set(text.split(",")) - set(MODES)
    if unknown:
        raise ConfigError(f"modes must be some of {','.join(MODES)}, got {text!r}")
    return chosen


def _spec_of_trace(path: Path, step_s: float, max_num_seqs: int, window: int) -> TimelineSpec:
    from chairlift.simulate.timeline import TimelineSpec
    from chairlift.workload.traces import read_trace

    if not step_s > 0:
        raise ConfigError(f"step_time must be above 0 seconds, got {step_s}")
    rows = list(read_trace(path).rows())
    outputs = tuple(num_output for _, _, num_output in rows)
    arrivals = tuple(int(arrival_s / step_s) for arrival_s, _, _ in rows)
    return TimelineSpec(outputs, arrivals, max_num_seqs, window)
