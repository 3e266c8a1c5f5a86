"""What a spike of load does to an engine whose pool is too small for it, in virtual time."""

from __future__ import annotations

import random
from bisect import bisect
from dataclasses import dataclass, field

import pytest

from chairlift.config import EngineLimits, PreemptionMode, SchedulerConfig
from chairlift.core.cost_model import CostModel
from chairlift.core.scheduler import Scheduler
from chairlift.engine.engine_core import EngineCore
from chairlift.inputs import CoreRequest
from chairlift.sampling_params import SamplingParams
from chairlift.simulate.simulated_runner import SimulatedRunner
from chairlift.simulate.virtual_clock import VirtualClock

COST = CostModel(0.0131, 0.00036, 2.0e-7, 0.00032, 0.00005)
BEFORE_S, AFTER_S = 150.0, 200.0


@dataclass
class Load:
    """As many requests at once as asked for: a new one for each that ends."""

    core: EngineCore
    clock: VirtualClock
    rng: random.Random
    num_live: int = 0
    num_added: int = 0
    num_tokens: int = 0
    moments: list[tuple[float, int, int]] = field(default_factory=list)

    def add(self, count: int) -> None:
        """Add requests of random lengths: outputs have a long tail."""
        for _ in range(count):
            prompt = (self.num_added,) * self.rng.randrange(16, 256)
            num_output = min(1500, 1 + int(self.rng.lognormvariate(5.0, 0.9)))
            params = SamplingParams(max_tokens=num_output, ignore_eos=True)
            name = str(self.num_added)
            self.core.add_request(CoreRequest(name, prompt, params, self.clock(), ()))
            self.num_added += 1
            self.num_live += 1

    def step(self) -> None:
        """Run a step; note when it ended, the tokens so far and the preemptions so far."""
        for output in self.core.step():
            self.num_tokens += len(output.token_ids)
            self.num_live -= output.finish_reason is not None
        num_preemptions = self.core.stats().scheduler.num_preemptions_total
        self.moments.append((self.clock(), self.num_tokens, num_preemptions))

    def rates(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Output tokens per second, and preemptions per 1,000 of them, between two moments."""
        first = self.moments[bisect(self.moments, (start_s, 0, 0))]
        last = self.moments[bisect(self.moments, (end_s, 0, 0)) - 1]
        num_tokens = last[1] - first[1]
        return num_tokens / (last[0] - first[0]), 1000 * (last[2] - first[2]) / num_tokens


def run_spike(mode: PreemptionMode, num_steady: int, num_more: int) -> tuple[Load, float]:
    """Steady load, so many more requests at once, steady load; also when the spike was over."""
    clock = VirtualClock()
    limits = EngineLimits(1 << 20, 8192, 16, 400, 1 << 20, 4000, 1e-4)
    config = SchedulerConfig(preemption_mode=mode)
    scheduler = Scheduler(config, limits, enable_prefix_caching=False)
    runner = SimulatedRunner(COST, clock, limits.swap_block_s)
    load = Load(EngineCore(scheduler, runner, clock=clock), clock, random.Random(0))
    while clock() < BEFORE_S:
        load.add(num_steady - load.num_live)
        load.step()
    load.add(num_more)
    while load.num_live > num_steady:
        load.step()
    over_s = clock()
    while clock() < over_s + AFTER_S:
        load.add(num_steady - load.num_live)
        load.step()
    return load, over_s


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_after_a_spike_throughput_is_what_it_was_and_preemptions_never_storm(
    mode: PreemptionMode,
) -> None:
    load, over_s = run_spike(mode, num_steady=16, num_more=150)
    before, _ = load.rates(30.0, BEFORE_S)
    during, storm = load.rates(BEFORE_S, over_s)
    after, _ = load.rates(over_s, over_s + AFTER_S)
    print(f"{mode}: {before:.0f}, {during:.0f}, {after:.0f} tokens/s; {storm:.2f} preemptions")
    assert after == pytest.approx(before, rel=0.05)
    assert during > 0.95 * before
    assert 0.0 < storm < 1.5
