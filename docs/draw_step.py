"""Draw ``docs/step.svg``: one real step of the scheduler, as a picture.

    python docs/draw_step.py          # or: make docs

The numbers in it are not made up: the product's scheduler plans the step and the product's batch
builder lays it out; only the model is missing. ``draw()`` gives the picture without writing it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.inputs import CoreRequest
from chairlift.runner.input_batch import InputBatch, StepInputs
from chairlift.sampling_params import SamplingParams

PICTURE = Path(__file__).parent / "step.svg"
BLOCK_SIZE, NUM_BLOCKS, TOKEN_BUDGET = 4, 8, 8
PROMPTS = {"A": 5, "B": 3, "C": 9, "D": 6}
COLOURS = {"A": "#2f6fb7", "B": "#c2571a", "C": "#2e8555", "D": "#777777"}
PALE = {"A": "#d6e4f5", "B": "#f8dfcd", "C": "#d5ecdd", "D": "#e8e8e8"}
INK, FAINT, LINE = "#1f2328", "#59636e", "#c5ccd3"
WIDTH, HEIGHT, MARGIN, CELL = 1080, 752, 28, 29


@dataclass(frozen=True, slots=True)
class Moment:
    """One step as planned, its batch, and what the requests looked like before it."""

    plan: SchedulerOutput
    batch: StepInputs
    tables: dict[str, list[int]]
    num_tokens: dict[str, int]


def plan_step() -> Moment:
    """Run two steps with A and B, let C and D arrive, and stop at the third."""
    scheduler = Scheduler(
        SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=TOKEN_BUDGET),
        EngineLimits(100, 1000, BLOCK_SIZE, NUM_BLOCKS, 10),
    )
    batch = InputBatch(4, BLOCK_SIZE)
    tables: dict[str, list[int]] = {name: [] for name in PROMPTS}
    num_tokens = dict(PROMPTS)
    for step in range(3):
        for name in {0: "AB", 2: "CD"}.get(step, ""):
            scheduler.add_request(_request(name))
        plan = scheduler.schedule(float(step))
        for new in plan.new_requests:
            batch.register(new)
        for row in plan.scheduled:
            tables[row.request_id] += row.new_block_ids
        inputs = batch.build(plan.scheduled)
        if step == 2:
            break
        sampled = {r: (_first_id(r) + num_tokens[r],) for r in inputs.sampled_request_ids}
        for name in sampled:
            num_tokens[name] += 1
        new_ids = np.array([ids[0] for ids in sampled.values()], np.int32)
        batch.append(inputs.sampled_slots, new_ids)
        scheduler.update(plan, ModelRunnerOutput(sampled), float(step))
    return Moment(plan, inputs, tables, num_tokens)


def _first_id(name: str) -> int:
    return 11 + 20 * "ABCD".index(name)


def _request(name: str) -> CoreRequest:
    first = _first_id(name)
    params = SamplingParams(max_tokens=6, temperature=0.0)
    return CoreRequest(name, tuple(range(first, first + PROMPTS[name])), params, 0.0, ())


class State(Enum):
    """Of a token: computed before this step, computed in it, or not yet."""

    OLD = "old"
    NEW = "new"
    EMPTY = "empty"


@dataclass(slots=True)
class Canvas:
    """Collects the elements of a picture."""

    elements: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str = LINE,
        dashed: bool = False,
    ) -> None:  # fmt: skip
        """Draw a rectangle."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
            f'fill="{fill}" stroke="{stroke}"{dash}/>'
        )

    def text(
        self, x: float, y: float, text: str, *, size: float = 13, fill: str = INK,
        anchor: str = "start", weight: str = "normal", mono: bool = False,
    ) -> None:  # fmt: skip
        """Write a line of text; ``y`` is its base line."""
        family = ' class="mono"' if mono else ""
        self.elements.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}" text-anchor="{anchor}" '
            f'font-weight="{weight}"{family}>{text}</text>'
        )

    def cell(self, x: float, y: float, label: str, name: str, state: State) -> None:
        """Draw one token or slot in the colours of its request."""
        colour, pale = COLOURS.get(name, LINE), PALE.get(name, "#ffffff")
        fill, ink = {
            State.NEW: (colour, "#ffffff"),
            State.OLD: (pale, INK),
            State.EMPTY: ("#ffffff", FAINT),
        }[state]
        size = CELL - 3
        self.box(x, y, size, size, fill=fill, stroke=colour, dashed=state is State.EMPTY)
        middle = x + size / 2
        self.text(middle, y + 18, label, size=12, fill=ink, anchor="middle", mono=True)

    def heading(self, y: float, title: str, *explanation: str) -> None:
        """Write a title, and one line under it."""
        self.text(MARGIN, y, title, weight="600", size=15)
        self.text(MARGIN, y + 19, "".join(explanation), fill=FAINT)

    def arrow(self, path: str) -> None:
        """Draw a line that ends in an arrow head."""
        self.elements.append(
            f'<path d="{path}" fill="none" stroke="{FAINT}" stroke-width="1.5" '
            'marker-end="url(#head)"/>'
        )

    def svg(self) -> str:
        """The whole picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" '
            'font-family="system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif">\n'
            "<title>One step of continuous batching, from the queue to the next tokens</title>\n"
            "<style>.mono { font-family: ui-monospace, DejaVu Sans Mono, monospace }</style>\n"
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{FAINT}"/>'
            "</marker></defs>\n"
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n'
        )
        return head + "\n".join(self.elements) + "\n</svg>\n"


STAGES = (
    ("validate, tokenise", "engine/input_processor.py"),
    ("schedule", "core/scheduler.py"),
    ("lay out the batch", "runner/input_batch.py"),
    ("forward", "csrc/"),
    ("sample", "runner/sampler.py"),
    ("update", "core/scheduler.py"),
    ("text, stop strings", "engine/output_processor.py"),
)


def draw_stages(canvas: Canvas) -> None:
    """The way of a request: before the step, the step itself, and after it."""
    top, height, gap = 60, 54, 11.5
    widths = [174, 128, 142, 76, 128, 128, 188]
    lefts = [MARGIN + sum(widths[:i]) + gap * i for i in range(len(widths))]
    frame_left, frame_right = lefts[1] - 6, lefts[5] + widths[5] + 6
    frame_width = frame_right - frame_left
    canvas.box(frame_left, top - 30, frame_width, height + 64, fill="#f6f8fa", dashed=True)
    canvas.text(frame_left + 10, top - 11, "engine process: one step", size=12, fill=FAINT)
    canvas.text(MARGIN, top - 11, "front process", size=12, fill=FAINT)
    canvas.text(lefts[6], top - 11, "front process, meanwhile", size=12, fill=FAINT)
    for (name, file), left, width in zip(STAGES, lefts, widths, strict=True):
        middle = left + width / 2
        canvas.box(left, top, width, height, fill="#ffffff", stroke="#8c959f")
        canvas.text(middle, top + 23, name, anchor="middle", weight="600")
        canvas.text(middle, top + 42, file, size=10.5, fill=FAINT, anchor="middle", mono=True)
    for left in lefts[1:]:
        canvas.arrow(f"M{left - gap:g} {top + height / 2:g} H{left - 1:g}")
    back = top + height + 16
    end, start = lefts[1] + widths[1] / 2, lefts[5] + widths[5] / 2
    canvas.arrow(f"M{start:g} {top + height} V{back} H{end:g} V{top + height + 1}")
    canvas.text((start + end) / 2, back + 12, "again, at once", size=11, fill=FAINT)


def draw_requests(canvas: Canvas, moment: Moment, top: float) -> None:
    """What the scheduler sees: known tokens of each request, and which it takes now."""
    canvas.heading(
        top,
        "1  schedule(): computed tokens catch up with known ones",
        "Running requests first, then the queue, until the step's ",
        f"{TOKEN_BUDGET} tokens (max_num_batched_tokens) are given out.",
    )
    notes = {
        "A": "running: decodes, 1 token",
        "B": "running: decodes, 1 token, and needs a new block for it",
        "C": "new: a chunk of its prompt, 6 of 9 tokens; the rest in the next step",
        "D": "waiting: the token budget is used up",
    }
    rows = {row.request_id: row for row in moment.plan.scheduled}
    for i, (name, note) in enumerate(notes.items()):
        y = top + 34 + i * (CELL + 8)
        canvas.text(MARGIN + 8, y + 20, name, weight="700", fill=COLOURS[name], size=15)
        computed = rows[name].num_computed_tokens if name in rows else 0
        end = computed + (rows[name].num_scheduled_tokens if name in rows else 0)
        for position in range(moment.num_tokens[name]):
            state = State.OLD if position < computed else State.NEW
            canvas.cell(
                MARGIN + 34 + position * CELL,
                y,
                str(_first_id(name) + position),
                name,
                state if position < end else State.EMPTY,
            )
        canvas.text(MARGIN + 34 + 9 * CELL + 24, y + 20, note)


def draw_batch(canvas: Canvas, moment: Moment, top: float) -> None:
    """The flat batch: all tokens of the step end to end, no padding."""
    flat, rows = moment.batch.flat, moment.plan.scheduled
    canvas.heading(top, "2  the flat batch: all tokens end to end, no padding")
    owners = [row.request_id for row in rows for _ in range(row.num_scheduled_tokens)]
    per_token = {
        "token_ids": flat.token_ids,
        "positions": flat.positions,
        "slot_mapping": flat.slot_mapping,
    }
    for i, (label, values) in enumerate(per_token.items()):
        y = top + 16 + i * (CELL + 2)
        state = State.NEW if label == "token_ids" else State.OLD
        canvas.text(MARGIN + 8, y + 19, label, size=12, mono=True)
        for j, (owner, value) in enumerate(zip(owners, values.tolist(), strict=True)):
            canvas.cell(MARGIN + 124 + j * (CELL + 4), y, str(value), owner, state)
    per_request = {
        "query_start_loc": str(flat.query_start_loc.tolist()),
        "seq_lens": str(flat.seq_lens.tolist()),
        "block_tables": "  ".join(str(moment.tables[row.request_id]) for row in rows),
        "logits rows": f"{moment.batch.logits_rows.tolist()}: A and B get a token, C not yet",
    }
    for i, (label, text) in enumerate(per_request.items()):
        y = top + 34 + i * 23
        canvas.text(MARGIN + 452, y, label, size=12, mono=True)
        canvas.text(MARGIN + 580, y, text, size=12, mono=True)


def draw_pool(canvas: Canvas, moment: Moment, top: float) -> None:
    """The KV pool: who holds which block, and which slots this step writes."""
    canvas.heading(
        top,
        "3  forward: K and V go to their slots, attention reads along the block tables",
        f"The paged KV pool, {NUM_BLOCKS} blocks of {BLOCK_SIZE} tokens. Full colour: written in ",
        "this step. slot = block \u00d7 block_size + offset.",
    )
    holders = {
        block: (name, index)
        for name, table in moment.tables.items()
        for index, block in enumerate(table)
    }
    flat = moment.batch.flat
    ids = [row.request_id for row in moment.plan.scheduled]
    seq_lens = dict(zip(ids, flat.seq_lens.tolist(), strict=True))
    written = set(flat.slot_mapping.tolist())
    width = BLOCK_SIZE * CELL + 9
    for block in range(NUM_BLOCKS):
        name, index = holders.get(block, ("", 0))
        num_used = seq_lens[name] - index * BLOCK_SIZE if name else 0
        x, y = MARGIN + block * (width + 3), top + 32
        canvas.box(x, y, width, 64, fill="#ffffff", stroke=COLOURS.get(name, LINE))
        canvas.text(x + 7, y + 18, f"block {block}", size=11, fill=FAINT)
        canvas.text(
            x + width - 17, y + 18, name, size=12, weight="700", fill=COLOURS.get(name, INK)
        )
        for offset in range(BLOCK_SIZE):
            slot = block * BLOCK_SIZE + offset
            state = State.NEW if slot in written else State.OLD
            canvas.cell(
                x + 6 + offset * CELL,
                y + 28,
                str(slot),
                name,
                state if offset < num_used else State.EMPTY,
            )


def draw_outcome(canvas: Canvas, top: float) -> None:
    """What comes of the step."""
    canvas.heading(
        top,
        "4  sample, update: A and B get their next tokens",
        "Whoever is done leaves, and its blocks go back to the pool. In the next step C reads the ",
        "rest of its prompt, and D begins.",
    )


def draw() -> str:
    """Plan the step and draw it."""
    moment = plan_step()
    canvas = Canvas()
    draw_stages(canvas)
    draw_requests(canvas, moment, 196)
    draw_batch(canvas, moment, 424)
    draw_pool(canvas, moment, 574)
    draw_outcome(canvas, 712)
    return canvas.svg()


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
