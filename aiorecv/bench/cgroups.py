"""Control groups: a small one for a measured process, with a quota of CPU or its memory counted.

Version 1 or 2, whichever has the controller. A group is made below the one this process is in, if
that is nobody else's: the hierarchy's root as this process sees it, or one that was delegated
(systemd's ``Delegate=yes``). Whoever made any other manages what is in it, so there the caller has
to name a parent. What can't be had is a `CgroupError` that says why.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

_GROUPS, _MOUNTS = Path("/proc/self/cgroup"), Path("/proc/self/mountinfo")
_PERIOD_US = 100_000  # the kernel's default for both versions
# A group can be removed a moment after its last process was reaped.
_REMOVAL_LIMIT = 5.0
_numbers = itertools.count(1)


class CgroupError(Exception):
    """There can be no such group here; the words say why, and what would help."""


@attrs.frozen
class Cgroup:
    """A control group of ours, there until the ``with`` block of `child_cgroup` ends."""

    path: Path
    version: int

    def add(self, pid: int) -> None:
        """Move a process in; what memory it has already stays charged where it was.

        Raises:
            CgroupError: If the kernel refuses.
        """
        _write(self.path / "cgroup.procs", str(pid))

    def joining(self, command: Sequence[str]) -> tuple[str, ...]:
        """A command that runs ``command`` in this group from its first page on, as one process."""
        script = 'echo $$ >"$0" && exec "$@"'
        return ("/bin/sh", "-c", script, str(self.path / "cgroup.procs"), *command)

    def limit_cpus(self, cpus: float) -> None:
        """Let its processes together have so much of a CPU's time; its controller is ``cpu``.

        Raises:
            CgroupError: If the kernel refuses.
        """
        quota = int(cpus * _PERIOD_US)
        if self.version == 2:
            _write(self.path / "cpu.max", f"{quota} {_PERIOD_US}")
        else:
            _write(self.path / "cpu.cfs_period_us", str(_PERIOD_US))
            _write(self.path / "cpu.cfs_quota_us", str(quota))

    def memory(self) -> Memory:
        """What its processes have in memory now; its controller is ``memory``.

        Raises:
            CgroupError: If the kernel does not tell.
        """
        stat = dict(line.split() for line in _read(self.path / "memory.stat").splitlines())
        if self.version == 2:
            current = int(_read(self.path / "memory.current"))
            reclaimable = int(stat["file"]) + int(stat["slab_reclaimable"])
            return Memory(int(stat["anon"]), current - reclaimable)
        # Version 1 does not tell reclaimable slab, so that it counts as not reclaimable here.
        current = int(_read(self.path / "memory.usage_in_bytes"))
        return Memory(int(stat["rss"]), current - int(stat["cache"]))


@attrs.frozen
class Memory:
    """The memory of a group's processes, in bytes."""

    anon: int
    """Anonymous pages: heaps, stacks, private mappings that were written to."""

    non_reclaimable: int
    """All that is charged, the kernel's own records included, less what can be dropped at need."""


@contextlib.contextmanager
def child_cgroup(controller: str, parent: Path | None = None) -> Iterator[Cgroup]:
    """A new group with this controller, ``cpu`` or ``memory``; removed in the end.

    Its processes have to be over by then.

    Args:
        controller: What the group is for.
        parent: Where to make it; None: in this process's own, if that is nobody else's.

    Raises:
        CgroupError: If it can't be made, or not be removed.
    """
    if parent is None:
        parent = _own(controller)
    version = 2 if (parent / "cgroup.controllers").exists() else 1
    with _enabled(controller, parent) if version == 2 else _offered(controller, parent):
        path = parent / f"aiorecv-{os.getpid()}-{next(_numbers)}"
        try:
            path.mkdir()
        except OSError as error:
            raise CgroupError(f"can't make {path}: {error.strerror}") from None
        try:
            yield Cgroup(path, version)
        finally:
            _remove(path)


def _own(controller: str) -> Path:
    """The directory of the group this process is in, by version 1 or else by version 2."""
    groups = {}
    for line in _read(_GROUPS).splitlines():
        _, names, group = line.split(":", 2)
        groups.update(dict.fromkeys(names.split(","), group))
    for kind, options, root, mounted in _mounts():
        name = controller if kind == "cgroup" and controller in options else ""
        if name not in groups or kind != ("cgroup" if name else "cgroup2"):
            continue
        path = mounted / os.path.relpath(groups[name], root)
        if not name and controller not in _read(path / "cgroup.controllers").split():
            continue
        if path != mounted and not _delegated(path):
            raise CgroupError(
                f"the {controller} cgroup that this process is in is managed by whoever made it: "
                "name one where groups may be made"
            )
        return path
    raise CgroupError(f"no cgroup hierarchy with the {controller} controller is mounted")


def _mounts() -> list[tuple[str, list[str], str, Path]]:
    """All hierarchies: file system, its options, the group that is its top, where it is."""
    found = []
    for line in _read(_MOUNTS).splitlines():
        mount, _, source = line.partition(" - ")
        kind, _, options = source.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            root, mounted = mount.split(" ")[3:5]
            found.append((kind, options.split(","), root, Path(mounted)))
    return sorted(found, key=lambda mount: mount[0])


def _delegated(path: Path) -> bool:
    """Whether systemd gave the group away, which it notes on the directory."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(path, name) == b"1":
                return True
    return False


@contextlib.contextmanager
def _enabled(controller: str, parent: Path) -> Iterator[None]:
    """The children of a group of version 2 have this controller; in the end as before."""
    control = parent / "cgroup.subtree_control"
    if controller not in _read(parent / "cgroup.controllers").split():
        raise CgroupError(f"{parent} has no {controller} controller")
    if controller in _read(control).split():
        yield
        return
    _write(control, f"+{controller}")
    try:
        yield
    finally:
        with contextlib.suppress(CgroupError):  # somebody else has found use for it
            _write(control, f"-{controller}")


@contextlib.contextmanager
def _offered(controller: str, parent: Path) -> Iterator[None]:
    """The group of version 1 is of this controller's hierarchy."""
    if not any(parent.glob(f"{controller}.*")):
        raise CgroupError(f"{parent} is no cgroup with the {controller} controller")
    yield


def _remove(path: Path) -> None:
    end = time.monotonic() + _REMOVAL_LIMIT
    while True:
        try:
            path.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise CgroupError(f"can't remove {path}: {error.strerror}") from None
        time.sleep(0.01)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise CgroupError(f"can't read {path}: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        why = "there are processes in it" if error.errno == errno.EBUSY else error.strerror
        raise CgroupError(f"can't write {text!r} to {path}: {why}") from None
