"""A policy of one's own, named as module:Class."""

from __future__ import annotations

import pytest
from tests.fakes import Bench, make_request

from chairlift.core.policies.fcfs import FcfsPolicy
from chairlift.core.policies.waiting_line import Key
from chairlift.core.request import Request
from chairlift.errors import ConfigError


class ShortestFirst(FcfsPolicy):
    """Shortest prompt first."""

    def _key(self, request: Request) -> Key:
        return (float(request.num_prompt_tokens), request.arrival_index)


def test_class_named_on_the_command_line_decides() -> None:
    bench = Bench(scheduling_policy=f"{__name__}:ShortestFirst", max_num_seqs=1)
    bench.add(*(make_request(f"{n}", n, max_tokens=1) for n in (9, 3, 6)))
    bench.run()
    assert [next(iter(batch)) for batch in bench.batches] == ["3", "6", "9"]


@pytest.mark.parametrize("name", ["no_such_module:Policy", "math:Policy", "math:floor"])
def test_class_that_cannot_be_loaded_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Bench(scheduling_policy=name)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="fcfs, priority, fair, prefix"):
        Bench(scheduling_policy="lifo")
