"""Draw ``docs/images/target-itl.svg``: gaps between tokens with and without ``--target-itl``.

    python docs/draw_target_itl.py          # or: make docs

What ``chairlift simulate`` says of the loads in ``docs/scheduling.md``, with fewer requests.
``draw()`` gives the picture without writing it.
"""

from __future__ import annotations

from pathlib import Path

from chairlift.config import SchedulerConfig
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.simulator import simulate
from chairlift.workload.chart import Chart, Series, charts_svg
from chairlift.workload.options import WorkloadOptions

FILE = Path(__file__).parent / "images" / "target-itl.svg"
WORK = WorkloadOptions(
    num_requests=150,
    rate=1.5,
    prompt_lengths="lognormal:200,2000,4000",
    output_lengths="lognormal:60,200,400",
)
TARGETS = {"no target": 0.0, "target 100 ms": 0.1, "target 50 ms": 0.05}
PERCENTS = (*(float(percent) for percent in range(5, 100, 5)), 97.5, 99.0, 100.0)


def draw() -> str:
    """The picture."""
    series = tuple(Series(name, _gaps(target_s)) for name, target_s in TARGETS.items())
    chart = Chart(
        "Gap before a token, in milliseconds", "percent of the tokens that come within it",
        series, is_log=True,
    )  # fmt: skip
    return charts_svg([chart])


def _gaps(target_s: float) -> tuple[tuple[float, float], ...]:
    """Percentiles of the gaps between tokens, in milliseconds."""
    setup = EngineOptions().setup(SchedulerConfig(max_num_seqs=64, target_itl_s=target_s))
    gaps = simulate(WORK.build(), setup).summaries(PERCENTS)["itl"]
    return tuple((percent, gaps.percentile(percent) * 1e3) for percent in PERCENTS)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(draw(), encoding="utf-8")
