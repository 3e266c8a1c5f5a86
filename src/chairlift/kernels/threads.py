"""How many threads this process may use: what it is allowed, not what the host has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def usable_threads(
    *,
    num_allowed_cpus: int | None = None,
    proc: Path = Path("/proc/self"),
    cgroup: Path = Path("/sys/fs/cgroup"),
) -> int:
    """Return the threads worth starting: whole CPUs, at least 1.

    It is the smaller of the CPUs in the affinity mask and of the CPU quotas of the process's
    control group and all its ancestors (version 1 or 2), rounded down: a quota of 7.65 CPUs gives
    7, because an eighth thread would stall the others while it is throttled.

    Args:
        num_allowed_cpus: CPUs in the affinity mask; ``None`` asks the operating system.
        proc: Folder of this process in procfs, whose file ``cgroup`` names its groups.
        cgroup: Where the control group file systems are mounted.
    """
    if num_allowed_cpus is None:
        num_allowed_cpus = _count_allowed_cpus()
    quotas = [quota for folder in _group_folders(proc, cgroup) for quota in _read_quotas(folder)]
    return max(1, int(min([float(num_allowed_cpus), *quotas])))


def _count_allowed_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _group_folders(proc: Path, cgroup: Path) -> Iterator[Path]:
    """Folders of the groups this process is in, with their ancestors; they need not exist.

    In a container the path may be the host's while the mount shows the container's own group at
    its root: that root is among the ancestors.
    """
    try:
        lines = (proc / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [cgroup, cgroup / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [cgroup / controllers, cgroup / "cpu"]
        else:
            continue
        relative = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for group in (relative, *relative.parents):
                yield mount / group


def _read_quotas(folder: Path) -> Iterator[float]:
    """CPUs that one group may use; nothing if it has no limit."""
    version_2 = _read_words(folder / "cpu.max")
    if len(version_2) == 2 and version_2[0] != "max":
        yield int(version_2[0]) / int(version_2[1])
    quota = _read_words(folder / "cpu.cfs_quota_us")
    period = _read_words(folder / "cpu.cfs_period_us")
    if quota and period and int(quota[0]) > 0:
        yield int(quota[0]) / int(period[0])


def _read_words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
