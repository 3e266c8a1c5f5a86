"""Scheduling policies: who is next, and who gives way. One class a file."""

from __future__ import annotations

from collections.abc import Callable

from chairlift.config import SchedulerConfig
from chairlift.core.policies.base import SchedulingPolicy
from chairlift.core.policies.fair import FairPolicy
from chairlift.core.policies.fcfs import FcfsPolicy
from chairlift.core.policies.prefix import PrefixPolicy
from chairlift.core.policies.priority import PriorityPolicy
from chairlift.core.request import Request


def make_policy(
    config: SchedulerConfig, cached_tokens: Callable[[Request], int]
) -> SchedulingPolicy:
    """The policy that the configuration names.

    Args:
        cached_tokens: Leading tokens of a request that the prefix cache has now.
    """
    if config.policy_class is not None:
        custom: SchedulingPolicy = config.policy_class(config)
        return custom
    if config.scheduling_policy == "priority":
        return PriorityPolicy(config)
    if config.scheduling_policy == "fair":
        return FairPolicy(config)
    if config.scheduling_policy == "prefix":
        return PrefixPolicy(config, cached_tokens)
    return FcfsPolicy(config)
