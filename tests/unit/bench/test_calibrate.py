"""Calibration runs steps of many sizes and records what was in each."""

from __future__ import annotations

import pytest
from tests.fakes import make_limits

from chairlift.bench.calibrate import Batch, batches, calibrate
from chairlift.config import SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.scheduler import Scheduler
from chairlift.engine.engine_core import EngineCore
from chairlift.simulate.simulated_runner import SimulatedRunner
from chairlift.simulate.virtual_clock import VirtualClock


def test_batches_double_up_to_the_limit_and_stay_within_what_fits() -> None:
    found = list(batches(6, 300))
    assert [batch.num_requests for batch in found] == [1, 1, 1, 2, 2, 2, 4, 4, 4, 6, 6, 6]
    assert found[:3] == [Batch(1, 32), Batch(1, 256), Batch(1, 276)]
    assert list(batches(64, 10_000))[-1] == Batch(64, 128)


@pytest.mark.parametrize("max_num_seqs", [1, 8])
def test_records_cover_prompts_and_every_number_of_decoding_requests(max_num_seqs: int) -> None:
    limits = make_limits(num_kv_blocks=4096, max_model_len=2048)
    config = SchedulerConfig(max_num_seqs=max_num_seqs, max_num_batched_tokens=256)
    clock = VirtualClock()
    core = EngineCore(
        Scheduler(config, limits, enable_prefix_caching=False),
        SimulatedRunner(CostModel(1e-3), clock),
        clock=clock,
    )
    records = calibrate(core, limits, max_num_seqs)
    assert not core.has_work
    sizes = [record.size for record in records]
    decoding = {s.num_seqs for s in sizes if s.num_tokens == s.num_seqs == s.num_head_rows}
    assert decoding == set(range(1, max_num_seqs + 1))
    assert max(size.num_tokens for size in sizes) == 256
    assert all(record.seconds > 0 for record in records)
    core.observe_steps(None)
