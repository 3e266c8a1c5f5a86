"""Groups of flags that the commands for studying share: the work, its tenants, and the engine."""

from __future__ import annotations

from collections.abc import Callable

from chairlift.cli.options import Command, Values, flags_of, with_flags
from chairlift.config import SchedulerConfig
from chairlift.simulate.options import EngineOptions
from chairlift.simulate.tenants import TenantOptions
from chairlift.workload.options import WorkloadOptions

NOT_FLAGS = ("tenants",)
"""Of the settings of the scheduler: what it knows of tenants comes from :class:`TenantOptions`."""


def workload_options(
    defaults: Values | None = None, skip: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """Give a command one flag per field of :class:`WorkloadOptions`, passed as ``work``.

    Args:
        defaults: Values that this command uses instead of the fields' own.
        skip: Fields without a flag.
    """
    flags = flags_of(WorkloadOptions, panel="Workload", defaults=defaults, skip=skip)
    return with_flags("work", flags, lambda values: WorkloadOptions(**values))


def simulated_engine_options() -> Callable[[Command], Command]:
    """Give a command the flags of a simulated engine, passed as ``engine``."""
    flags = flags_of(EngineOptions, panel="Simulated engine")
    return with_flags("engine", flags, lambda values: EngineOptions(**values))


def tenant_options() -> Callable[[Command], Command]:
    """Give a command one flag per field of :class:`TenantOptions`, passed as ``tenants``."""
    flags = flags_of(TenantOptions, panel="Tenants")
    return with_flags("tenants", flags, lambda values: TenantOptions(**values))


def scheduler_options(skip: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Give a command one flag per setting of the scheduler, passed as ``scheduler``."""
    flags = flags_of(SchedulerConfig, panel="Scheduler", skip=(*NOT_FLAGS, *skip))
    return with_flags("scheduler", flags, lambda values: SchedulerConfig(**values))
