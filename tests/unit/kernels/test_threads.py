"""The number of threads follows affinity and control group quotas."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chairlift.kernels.threads import usable_threads


def fake_machine(root: Path, membership: str, files: dict[str, str]) -> dict[str, Path]:
    """A /proc/self with that cgroup file, and a cgroup mount with those files."""
    proc, cgroup = root / "proc", root / "cgroup"
    proc.mkdir()
    (proc / "cgroup").write_text(membership)
    for name, text in files.items():
        file = cgroup / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {"proc": proc, "cgroup": cgroup}


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("max 100000", 16),
        ("765000 100000", 7),
        ("200000 100000", 2),
        ("50000 100000", 1),
        ("3200000 100000", 16),
    ],
)
def test_a_version_2_quota_counts_in_whole_cpus(
    tmp_path: Path, cpu_max: str, expected: int
) -> None:
    machine = fake_machine(tmp_path, "0::/app\n", {"app/cpu.max": cpu_max + "\n"})
    assert usable_threads(num_allowed_cpus=16, **machine) == expected


@pytest.mark.parametrize(
    ("quota", "period", "expected"), [("-1", "100000", 8), ("765000", "100000", 7), ("1", "9", 1)]
)
def test_a_version_1_quota_counts_in_whole_cpus(
    tmp_path: Path, quota: str, period: str, expected: int
) -> None:
    files = {
        "cpu,cpuacct/box/cpu.cfs_quota_us": quota,
        "cpu,cpuacct/box/cpu.cfs_period_us": period,
    }
    machine = fake_machine(tmp_path, "5:memory:/other\n3:cpu,cpuacct:/box\n", files)
    assert usable_threads(num_allowed_cpus=8, **machine) == expected


def test_an_ancestor_with_a_smaller_quota_wins(tmp_path: Path) -> None:
    files = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000", "a/b/c/cpu.max": "5 1"}
    machine = fake_machine(tmp_path, "0::/a/b/c\n", files)
    assert usable_threads(num_allowed_cpus=64, **machine) == 3


def test_a_container_sees_its_quota_at_the_root_of_the_mount(tmp_path: Path) -> None:
    machine = fake_machine(tmp_path, "0::/host/path/of/pod\n", {"cpu.max": "150000 100000"})
    assert usable_threads(num_allowed_cpus=64, **machine) == 1


def test_quotas_of_other_controllers_do_not_count(tmp_path: Path) -> None:
    files = {"cpuset/x/cpu.cfs_quota_us": "100000", "cpuset/x/cpu.cfs_period_us": "100000"}
    machine = fake_machine(tmp_path, "3:cpuset:/x\n", files)
    assert usable_threads(num_allowed_cpus=4, **machine) == 4


def test_without_control_groups_affinity_decides(tmp_path: Path) -> None:
    assert usable_threads(num_allowed_cpus=6, proc=tmp_path, cgroup=tmp_path) == 6


def test_there_is_always_one_thread(tmp_path: Path) -> None:
    assert usable_threads(num_allowed_cpus=0, proc=tmp_path, cgroup=tmp_path) == 1


def test_this_process_may_use_no_more_than_its_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)
