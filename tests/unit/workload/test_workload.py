"""Workloads are drawn repeatably, and their parts do not disturb each other."""

from __future__ import annotations

import numpy as np
import pytest

from chairlift.errors import ConfigError
from chairlift.workload.arrivals import ArrivalProcess
from chairlift.workload.lengths import parse_lengths
from chairlift.workload.workload import Workload, make_workload

LENGTHS = parse_lengths("lognormal:50,200")


def test_the_same_seed_gives_the_same_workload_and_another_another() -> None:
    first, again, other = (
        list(make_workload(20, ArrivalProcess("poisson", 2.0), LENGTHS, LENGTHS, seed).rows())
        for seed in (7, 7, 8)
    )
    assert first == again != other


def test_lengths_do_not_depend_on_the_arrivals() -> None:
    slow = make_workload(20, ArrivalProcess("poisson", 2.0), LENGTHS, LENGTHS)
    fast = make_workload(20, ArrivalProcess("gamma", 9.0, 0.5), LENGTHS, LENGTHS)
    assert slow.num_prompt_tokens.tolist() == fast.num_prompt_tokens.tolist()
    assert slow.num_output_tokens.tolist() == fast.num_output_tokens.tolist()
    assert slow.num_prompt_tokens.tolist() != slow.num_output_tokens.tolist()


def test_another_rate_keeps_requests_and_their_order() -> None:
    workload = make_workload(5, ArrivalProcess("constant", 1.0), LENGTHS, LENGTHS)
    faster = workload.at_rate(ArrivalProcess("constant", 10.0), np.random.default_rng(0))
    assert faster.arrival_s.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert faster.num_output_tokens is workload.num_output_tokens


def test_common_prefixes_are_dealt_out_among_the_requests() -> None:
    workload = make_workload(200, ArrivalProcess(), LENGTHS, LENGTHS)
    grouped = workload.with_prefixes(3, 40, np.random.default_rng(0))
    assert grouped.prefix_group is not None
    assert set(grouped.prefix_group.tolist()) == {0, 1, 2}
    assert grouped.num_prefix_tokens == 40


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_requests must be at least 1, got 0"):
        make_workload(0, ArrivalProcess(), LENGTHS, LENGTHS)
    with pytest.raises(ConfigError, match="seed must be at least 0, got -1"):
        make_workload(1, ArrivalProcess(), LENGTHS, LENGTHS, seed=-1)
    one = Workload(np.zeros(1), np.ones(1, np.int64), np.ones(1, np.int64))
    with pytest.raises(ConfigError, match="at least 1 group of 1 token, got 0 of 5"):
        one.with_prefixes(0, 5, np.random.default_rng(0))
