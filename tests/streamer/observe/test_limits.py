"""What a process may use, read from made-up files of the kernel's control groups."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from streamer.observe.limits import CgroupLimits, cgroup_limits, machine_memory


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_limits_of_a_container_are_the_smallest_of_its_groups(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "two/cpu.max": "max 100000\n",
            "two/memory.max": "max\n",
            "two/kube/cpu.max": "150000 100000\n",
            "two/kube/memory.max": "2147483648\n",
            "two/kube/pod/memory.max": "4294967296\n",
            "groups": "0::/kube/pod\n",
        },
    )
    assert cgroup_limits(tmp_path / "two", tmp_path / "groups") == CgroupLimits(1.5, 2 << 30)


def test_the_limits_of_version_1_are_read_too_where_the_path_is_that_of_the_host(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "old/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "old/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "old/memory/memory.limit_in_bytes": "536870912\n",
            "groups": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
        },
    )
    assert cgroup_limits(tmp_path / "old", tmp_path / "groups") == CgroupLimits(0.5, 512 << 20)


def test_without_limits_there_are_none(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "old/cpu/cpu.cfs_quota_us": "-1\n",
            "old/cpu/cpu.cfs_period_us": "100000\n",
            "old/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "groups": "5:memory:/\n4:cpu:/\n0::/\n",
        },
    )
    assert cgroup_limits(tmp_path / "old", tmp_path / "groups") == CgroupLimits(None, None)
    assert cgroup_limits(tmp_path / "nothing", tmp_path / "nothing") == CgroupLimits(None, None)


@pytest.mark.parametrize(
    ("member", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "1000\n"}, 1000),
        ("0::/a/b\n", {"a/memory.max": "3000\n", "a/b/memory.max": "max\n"}, 3000),
        ("0::/a/b\n", {"a/memory.max": "3000\n", "a/b/memory.max": "2000\n"}, 2000),
        # The path of the host, seen from inside a container.
        ("0::/kubepods/pod7\n", {"memory.max": "500\n"}, 500),
        ("4:cpu:/\n7:memory:/a\n", {"memory/a/memory.limit_in_bytes": "700\n"}, 700),
        ("0::/\n", {}, None),
        ("", {}, None),
    ],
)
def test_the_memory_limit_is_the_lowest_of_all_groups(
    tmp_path: Path, member: str, files: dict[str, str], limit: int | None
) -> None:
    written(tmp_path, {**files, "groups": member})
    assert cgroup_limits(tmp_path, tmp_path / "groups").memory == limit


def test_the_memory_of_the_machine_is_all_that_is_built_into_it() -> None:
    assert machine_memory() == pytest.approx(psutil.virtual_memory().total, rel=0.01)
