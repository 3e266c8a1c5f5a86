"""Draw ``docs/images/preemption.svg``: where the KV of a request is while it has to give way.

    python docs/draw_preemption.py          # or: make docs

The scheduler itself decides what is drawn: two requests in a pool that is too small for both.
``draw()`` gives the picture without writing it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.inputs import CoreRequest
from chairlift.sampling_params import SamplingParams
from chairlift.simulate.timeline_svg import COLOURS, MARGIN, STYLE, WIDTH

FILE = Path(__file__).parent / "images" / "preemption.svg"
BLOCK_SIZE, NUM_BLOCKS, NUM_SLOTS = 4, 8, 3
REQUESTS = (("A", 8, 21), ("B", 8, 14))
"""Name, prompt tokens, output tokens."""

LABEL_WIDTH, CELL_HEIGHT, GAP, HEAD, FOOT = 78, 22, 3, 46, 66


class Cell(NamedTuple):
    """What is in a place at a step: whose KV (empty: nobody's), and whether it holds the place."""

    owner: str
    is_held: bool


class Column(NamedTuple):
    """One step: pool blocks, slots of the second tier, and what happened."""

    blocks: list[Cell]
    slots: list[Cell]
    plan: SchedulerOutput


def run() -> list[Column]:
    """Run the requests to their ends and look at every step."""
    limits = EngineLimits(1000, 100, BLOCK_SIZE, NUM_BLOCKS, 10, NUM_SLOTS, 1e-4)
    config = SchedulerConfig(preemption_mode="swap", max_num_seqs=2, max_num_batched_tokens=32)
    scheduler = Scheduler(config, limits, enable_prefix_caching=False)
    for index, (name, num_prompt, max_tokens) in enumerate(REQUESTS):
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        scheduler.add_request(CoreRequest(name, (1,) * num_prompt, params, float(index), ()))
    columns = []
    tables: dict[str, list[int]] = {}
    while scheduler.has_work:
        plan = scheduler.schedule(0.0)
        for row in plan.scheduled:
            table = tables.setdefault(row.request_id, [])
            table[:] = [*([] if row.replace_blocks else table), *row.new_block_ids]
        for name in (*plan.finished_request_ids, *plan.preempted_request_ids):
            tables.pop(name, None)
        if plan.scheduled:
            columns.append(_look(scheduler, tables, plan))
        sampled = {row.request_id: (1,) for row in plan.scheduled if row.yields_token}
        scheduler.update(plan, ModelRunnerOutput(sampled), 0.0)
    return columns


def _look(scheduler: Scheduler, tables: dict[str, list[int]], plan: SchedulerOutput) -> Column:
    blocks = [Cell("", False)] * NUM_BLOCKS
    slots = [Cell("", False)] * NUM_SLOTS
    for name, *_ in REQUESTS:
        remains = scheduler.kv_cache.left_behind.of(name)
        for block_id, slot in zip(remains.blocks, remains.slots, strict=True) if remains else ():
            if block_id is not None:
                blocks[block_id] = Cell(name, is_held=False)
            if slot is not None:
                slots[slot] = Cell(name, is_held=True)
    for name, table in tables.items():
        for block_id in table:
            blocks[block_id] = Cell(name, is_held=True)
    return Column(blocks, slots, plan)


def draw() -> str:
    """The picture as SVG."""
    columns = run()
    step = (WIDTH - 2 * MARGIN - LABEL_WIDTH) / len(columns)
    num_rows = NUM_BLOCKS + NUM_SLOTS
    tier_gap = 14
    height = MARGIN + HEAD + num_rows * (CELL_HEIGHT + GAP) + tier_gap + FOOT
    left, top = MARGIN + LABEL_WIDTH, MARGIN + HEAD

    def row_y(row: int) -> int:
        return top + row * (CELL_HEIGHT + GAP) + (tier_gap if row >= NUM_BLOCKS else 0)

    parts = [
        f'<text class="ink big" x="{MARGIN}" y="{MARGIN + 16}">Two requests, a pool of '
        f"{NUM_BLOCKS} KV blocks and a second tier of {NUM_SLOTS}</text>"
    ]
    for row in range(num_rows):
        name = f"block {row}" if row < NUM_BLOCKS else f"tier {row - NUM_BLOCKS}"
        parts.append(f'<text class="faint" x="{MARGIN}" y="{row_y(row) + 16}">{name}</text>')
    for index, column in enumerate(columns):
        x = left + index * step
        for row, cell in enumerate((*column.blocks, *column.slots)):
            parts.append(_cell(cell, x, row_y(row), step))
        for text in _events(column.plan):
            parts.append(
                f'<text class="ink small mid" x="{x + step / 2:.1f}" y="{top - 8}">{text}</text>'
            )
    foot_y = height - 26
    parts += [
        f'<text class="faint small" x="{left}" y="{foot_y - 18}">'
        f"Steps 1 to {len(columns)}, from left to right</text>",
        f'<text class="faint small" x="{MARGIN}" y="{foot_y + 6}">Full: held by the request. '
        "Pale: left behind by it, copied to the second tier when another needs the block.</text>",
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-label="Blocks of a preempted '
            'request stay in the pool until another needs them and return from the second tier">',
            STYLE,
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _cell(cell: Cell, x: float, y: float, step: float) -> str:
    size = f'x="{x:.1f}" y="{y}" width="{step - 2:.1f}" height="{CELL_HEIGHT}" rx="3"'
    if not cell.owner:
        return f'<rect class="lane" {size}/>'
    colour = COLOURS["AB".index(cell.owner)]
    opacity = "" if cell.is_held else ' fill-opacity="0.35"'
    text = f'<text class="name" x="{x + step / 2 - 1:.1f}" y="{y + 16}">{cell.owner}</text>'
    return f'<rect {size} fill="{colour}"{opacity}/>' + (text if cell.is_held else "")


def _events(plan: SchedulerOutput) -> list[str]:
    """What is written above a step."""
    if plan.preempted_request_ids:
        return [f"{plan.preempted_request_ids[0]} gives way"]
    if plan.swap_in:
        return [f"{plan.scheduled[-1].request_id} returns"]
    return []


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(draw(), encoding="utf-8")
