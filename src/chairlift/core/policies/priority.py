"""Urgent requests first, and a bound on how long the others wait."""

from __future__ import annotations

import math

from chairlift.config import SchedulerConfig
from chairlift.core.policies.base import Outlook
from chairlift.core.policies.fcfs import FcfsPolicy
from chairlift.core.policies.waiting_line import Key
from chairlift.core.request import Request


class PriorityPolicy(FcfsPolicy):
    """Lower ``priority`` values are more urgent (as in vLLM); ties go by arrival.

    Waiting makes urgent: each ``priority_aging_s`` seconds count like one priority step. All age at
    the same rate, so the order of two requests never changes: request ``a`` goes before ``b`` if

        priority_a * aging + arrival_a  <  priority_b * aging + arrival_b

    which bounds the wait of the least urgent: a request of priority ``p`` goes before everything of
    priority ``q`` that arrives more than ``(p - q) * aging`` seconds after it.

    A waiting request takes the slot or the blocks of a running one only if it goes before it and
    its own ``priority`` is lower. The order being fixed, the two can never swap back.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._aging_s = config.priority_aging_s

    def _key(self, request: Request) -> Key:
        core_request = request.core_request
        urgency = core_request.priority * self._aging_s + core_request.arrival_time_s
        return (urgency, request.arrival_index)

    def gives_way(self, waiting: Request, running: Request) -> bool:
        """If the waiting one is more urgent, by its own priority and by the order."""
        is_urgent = waiting.core_request.priority < running.core_request.priority
        return is_urgent and self._key(waiting) < self._key(running)

    def outlook(self, now_s: float, mean_output_tokens: float) -> Outlook | None:
        """A request stays before newcomers from the priority on with which they come no earlier.

        That is the least p for which ``p * aging + now`` is not below its own key. Running ones of
        a lower rank give way: they came before now, so their own priority is higher than p, too.
        """

        def rank_of(request: Request) -> float:
            return math.ceil((self._key(request)[0] - now_s) / self._aging_s)

        return Outlook(rank_of)
