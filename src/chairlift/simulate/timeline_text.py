"""A timeline for the terminal: one line per slot, one character per step."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from chairlift.simulate.timeline import Stay, Timeline

COLOURS = ("blue", "dark_orange", "green", "magenta", "cyan", "red", "yellow", "purple")
IDLE, EMPTY = "·", " "
_MARGIN = 10


def draw_timelines(timelines: Iterable[Timeline], width: int) -> Text:
    """Draw timelines one below the other, to the same scale.

    Args:
        width: Characters per line, at least 40. Longer runs are drawn several steps to the
            character.
    """
    timelines = list(timelines)
    longest = max(timeline.num_steps for timeline in timelines)
    scale = -(-longest // max(40 - _MARGIN, width - _MARGIN))
    text = Text()
    for timeline in timelines:
        text.append(_headline(timeline) + "\n", style="bold")
        for slot in range(_num_slots_shown(timeline)):
            text.append(f"  slot {slot + 1:<2} ", style="dim").append(_lane(timeline, slot, scale))
            text.append("\n")
        text.append(_returns(timeline) + "\n\n", style="dim")
    legend = f"{IDLE} slot taken, no token: its request has ended and waits for the batch"
    if scale > 1:
        legend += f". One character is {scale} steps"
    return text.append(legend, style="dim")


def _headline(timeline: Timeline) -> str:
    return (
        f"{timeline.mode}: {timeline.num_steps} steps, {timeline.num_tokens} tokens in "
        f"{timeline.num_slot_steps} slot-steps, {timeline.utilisation:.1%} of the slots used, "
        f"back after {timeline.mean_return_step:.1f} steps on average"
    )


def _num_slots_shown(timeline: Timeline) -> int:
    """Slots that nobody ever took are left out, save the first of them."""
    used = max(stay.slot for stay in timeline.stays) + 1
    return min(timeline.max_num_seqs, used + 1)


def _lane(timeline: Timeline, slot: int, scale: int) -> Text:
    cells = [(EMPTY, "")] * -(-timeline.num_steps // scale)
    for index, stay in enumerate(timeline.stays):
        if stay.slot == slot:
            _fill(cells, stay, scale, COLOURS[index % len(COLOURS)])
    lane = Text("|")
    for letter, style in cells:
        lane.append(letter, style=style)
    return lane.append("|")


def _fill(cells: list[tuple[str, str]], stay: Stay, scale: int, colour: str) -> None:
    """Write a stay into its lane; a character of several steps shows who had its last one."""
    for step in range(stay.first_step, stay.returned_at + 1):
        is_busy = step <= stay.last_step
        if is_busy or step % scale == 0 or step == stay.returned_at:
            style = f"bold {colour}" if is_busy else "dim"
            cells[(step - 1) // scale] = (stay.name[0] if is_busy else IDLE, style)


def _returns(timeline: Timeline) -> str:
    shown = [f"{stay.name} {stay.returned_at}" for stay in timeline.stays[:26]]
    more = ", ..." if len(timeline.stays) > 26 else ""
    return "  returned after step: " + ", ".join(shown) + more
