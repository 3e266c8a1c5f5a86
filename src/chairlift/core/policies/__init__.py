"""Scheduling policies: who is next, and who gives way. One class a file."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from chairlift.config import SchedulerConfig
from chairlift.core.policies.base import SchedulingPolicy
from chairlift.core.policies.fair import FairPolicy
from chairlift.core.policies.fcfs import FcfsPolicy
from chairlift.core.policies.prefix import PrefixPolicy
from chairlift.core.policies.priority import PriorityPolicy
from chairlift.core.request import Request
from chairlift.errors import ConfigError


def make_policy(
    config: SchedulerConfig, cached_tokens: Callable[[Request], int]
) -> SchedulingPolicy:
    """The policy that the configuration names.

    Args:
        cached_tokens: Leading tokens of a request that the prefix cache has now.

    Raises:
        ConfigError: ``module:Class`` names something that cannot be imported.
    """
    if ":" in config.scheduling_policy:
        return _custom_policy(config)
    if config.scheduling_policy == "priority":
        return PriorityPolicy(config)
    if config.scheduling_policy == "fair":
        return FairPolicy(config)
    if config.scheduling_policy == "prefix":
        return PrefixPolicy(config, cached_tokens)
    return FcfsPolicy(config)


def _custom_policy(config: SchedulerConfig) -> SchedulingPolicy:
    module_name, _, class_name = config.scheduling_policy.partition(":")
    try:
        policy: SchedulingPolicy = getattr(import_module(module_name), class_name)(config)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"scheduling_policy {config.scheduling_policy!r} cannot be loaded: {error}; "
            "it must be module:Class, with the module on the Python path"
        ) from error
    return policy
