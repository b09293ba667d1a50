"""Cgroups: where they are made, what is written to them and read, and what is said otherwise.

Real ones of the cpu controller; for the rest directories with the files that the kernel has there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiorecv.bench import cgroups
from aiorecv.bench.cgroups import Cgroup, CgroupError, Memory, child_cgroup

MIB = 1 << 20
WHERE = "import sys; sys.stdout.write(open('/proc/self/cgroup').read())"


@contextlib.contextmanager
def real_group() -> Iterator[Cgroup]:
    """A group of the kernel's."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a cgroup")
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(child_cgroup("cpu"))
        except CgroupError as error:
            pytest.skip(f"no cpu cgroup here: {error}")
        yield group


# --- real groups


def test_command_joins_before_it_runs():
    with real_group() as group:
        command = group.joining((sys.executable, "-c", WHERE))

        done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert group.path.name in done.stdout


def test_running_process_is_moved_in_and_limited():
    with real_group() as group, subprocess.Popen(["sleep", "60"]) as process:
        group.limit_cpus(0.25)
        group.add(process.pid)

        inside = (group.path / "cgroup.procs").read_text().split()
        name = "cpu.max" if group.version == 2 else "cpu.cfs_quota_us"
        quota = (group.path / name).read_text().split()[0]
        process.kill()

    assert inside == [str(process.pid)]
    assert quota == "25000"


def test_group_is_gone_in_the_end():
    with real_group() as group:
        assert group.path.is_dir()

    assert not group.path.exists()


def test_group_that_is_still_used_can_not_be_removed(monkeypatch):
    monkeypatch.setattr(cgroups, "_REMOVAL_LIMIT", 0.05)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with pytest.raises(CgroupError, match="can't remove"), real_group() as group:
                group.add(process.pid)
        finally:
            process.kill()
    cgroups._remove(group.path)

    assert not group.path.exists()


def test_process_that_is_not_there_is_refused():
    with real_group() as group, pytest.raises(CgroupError, match="No such process"):
        group.add(4_194_305)  # above what Linux lets pid_max be


# --- what is written and read


def test_memory_of_version_2_is_less_file_pages_and_reclaimable_slab(tmp_path):
    stat = f"anon {3 * MIB}\nfile {20 * MIB}\nslab_reclaimable {2 * MIB}\nslab_unreclaimable 5\n"
    (tmp_path / "memory.stat").write_text(stat)
    (tmp_path / "memory.current").write_text(f"{26 * MIB}\n")

    assert Cgroup(tmp_path, 2).memory() == Memory(anon=3 * MIB, non_reclaimable=4 * MIB)


def test_memory_of_version_1_is_less_the_cache(tmp_path):
    (tmp_path / "memory.stat").write_text(f"cache {20 * MIB}\nrss {3 * MIB}\ntotal_rss 9\n")
    (tmp_path / "memory.usage_in_bytes").write_text(f"{26 * MIB}\n")

    assert Cgroup(tmp_path, 1).memory() == Memory(anon=3 * MIB, non_reclaimable=6 * MIB)


def test_group_without_memory_files_says_so(tmp_path):
    with pytest.raises(CgroupError, match=r"can't read .*memory.stat: No such file"):
        Cgroup(tmp_path, 2).memory()


@pytest.mark.parametrize(
    ("version", "written"),
    [
        (1, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}),
        (2, {"cpu.max": "150000 100000"}),
    ],
)
def test_quota_is_written_as_each_version_wants_it(tmp_path, version, written):
    Cgroup(tmp_path, version).limit_cpus(1.5)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == written


# --- where a group is made


class Machine:
    """A directory for hierarchies, and what the kernel says of this process's place in them."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.groups = top / "groups"
        self.mounts = top / "mounts"

    def has(self, kind: str, controller: str, group: str, *, root: str = "/") -> Path:
        """Mount a hierarchy; returns the directory of this process's group."""
        mounted = self.top / kind
        own = mounted / os.path.relpath(group, root)
        own.mkdir(parents=True)
        if kind == "cgroup2":
            (own / "cgroup.controllers").write_text(f"cpu {controller}\n")
            (own / "cgroup.subtree_control").write_text("")
            line = f"0::{group}\n"
        else:
            (own / f"{controller}.stat").touch()
            line = f"4:{controller},other:{group}\n"
        with self.groups.open("a") as file:
            file.write(line)
        with self.mounts.open("a") as file:
            file.write("22 1 8:1 / / rw,relatime - ext4 /dev/root rw\n")
            file.write(f"30 22 0:27 {root} {mounted} rw shared:9 - {kind} none rw,{controller}\n")
        return own


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(cgroups, "_GROUPS", made.groups)
    monkeypatch.setattr(cgroups, "_MOUNTS", made.mounts)
    return made


@pytest.mark.parametrize(("kind", "version"), [("cgroup", 1), ("cgroup2", 2)])
@pytest.mark.parametrize("root", ["/", "/container"])
def test_group_is_made_in_the_top_one(machine, kind, version, root):
    own = machine.has(kind, "memory", root, root=root)

    with child_cgroup("memory") as group:
        assert (group.path.parent, group.version) == (own, version)
        assert group.path.is_dir()

    assert not group.path.exists()


@pytest.mark.parametrize("kind", ["cgroup", "cgroup2"])
def test_no_group_is_made_in_one_that_others_manage(machine, kind):
    own = machine.has(kind, "memory", "/services/ours")
    before = list(own.iterdir())

    with pytest.raises(CgroupError, match="managed by"), child_cgroup("memory"):
        pass

    assert list(own.iterdir()) == before


def test_group_is_made_in_one_that_was_delegated(machine):
    own = machine.has("cgroup2", "memory", "/services/ours")
    try:
        os.setxattr(own, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"needs a file system with extended attributes: {error}")

    with child_cgroup("memory") as group:
        assert group.path.parent == own


def test_version_1_is_taken_where_both_are_mounted(machine):
    machine.has("cgroup2", "hugetlb", "/")
    own = machine.has("cgroup", "memory", "/")

    with child_cgroup("memory") as group:
        assert (group.path.parent, group.version) == (own, 1)


@pytest.mark.parametrize("kind", ["cgroup", "cgroup2"])
def test_controller_that_no_hierarchy_has_is_told(machine, kind):
    machine.has(kind, "hugetlb", "/")

    with pytest.raises(CgroupError, match="no cgroup hierarchy with the memory controller"):
        child_cgroup("memory").__enter__()


def test_controller_is_on_while_the_group_is_there(machine):
    control = machine.has("cgroup2", "memory", "/") / "cgroup.subtree_control"

    with child_cgroup("memory"):
        assert control.read_text() == "+memory"

    assert control.read_text() == "-memory"


def test_controller_that_was_on_stays_on(machine):
    control = machine.has("cgroup2", "memory", "/") / "cgroup.subtree_control"
    control.write_text("cpu memory")

    with child_cgroup("memory"):
        pass

    assert control.read_text() == "cpu memory"


def test_named_parent_is_taken_whoever_manages_it(machine):
    own = machine.has("cgroup", "memory", "/services/ours")

    with child_cgroup("memory", own) as group:
        assert group.path.parent == own


@pytest.mark.parametrize("kind", ["cgroup", "cgroup2"])
def test_named_parent_needs_the_controller(machine, kind):
    own = machine.has(kind, "hugetlb", "/")

    with pytest.raises(CgroupError, match="memory controller"):
        child_cgroup("memory", own).__enter__()


def test_parent_that_is_no_cgroup_is_refused(tmp_path):
    with pytest.raises(CgroupError, match="is no cgroup with the cpu controller"):
        child_cgroup("cpu", tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_what_the_kernel_says_of_a_write_is_told(tmp_path):
    with pytest.raises(CgroupError, match=r"can't write '1' to .*cgroup.procs: No such file"):
        Cgroup(tmp_path / "gone", 2).add(1)
