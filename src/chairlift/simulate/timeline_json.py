"""A timeline as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chairlift.simulate.timeline import Timeline, TimelineSpec


def timelines_as_dict(spec: TimelineSpec, timelines: Sequence[Timeline]) -> dict[str, Any]:
    """What was asked for and what came of it, ready for JSON. Steps count from 1, slots from 0."""
    return {
        "max_num_seqs": spec.max_num_seqs,
        "window_steps": spec.window_steps,
        "lengths": list(spec.lengths),
        "arrivals": list(spec.arrivals),
        "modes": {timeline.mode: _as_dict(timeline) for timeline in timelines},
    }


def _as_dict(timeline: Timeline) -> dict[str, Any]:
    return {
        "steps": timeline.num_steps,
        "running": list(timeline.running),
        "tokens": timeline.num_tokens,
        "slot_steps": timeline.num_slot_steps,
        "utilisation": round(timeline.utilisation, 4),
        "mean_return_step": round(timeline.mean_return_step, 3),
        "requests": {
            stay.name: {
                "arrival_step": stay.arrival_step,
                "tokens": stay.num_tokens,
                "slot": stay.slot,
                "first_step": stay.first_step,
                "last_step": stay.last_step,
                "returned_at": stay.returned_at,
            }
            for stay in timeline.stays
        },
    }
