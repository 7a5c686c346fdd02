"""The container's limits: its cgroups, their memory and CPU, and the host's figures."""

from __future__ import annotations

import os
import re
import time

from rgt_box import jsonline, procstat

TYPE_CHECKING = False

if TYPE_CHECKING:
    from rgt_wire import JsonObject


class CgroupFolders:
    """The directories of one cgroup controller.

    Attributes:
        version: 1 or 2.
        levels: Directories from the own cgroup up to the mount's root; a limit on any of them
            applies.
    """

    __slots__ = ("levels", "version")

    def __init__(self, version: int, levels: list[str]) -> None:
        self.version = version
        self.levels = levels


def parse_own(text: str) -> dict[str, str]:
    """Parse ``/proc/self/cgroup`` into controller → path; version 2 has an empty string as key."""
    own = {}
    for row in text.splitlines():
        parts = row.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                own[controller] = parts[2]
    return own


def parse_mounts(text: str) -> list[tuple[str, str, str, set[str]]]:
    """Parse ``/proc/self/mountinfo``.

    Returns (root in the file system, mount point, type, super options) of each mount.
    """
    mounts = []
    for row in text.splitlines():
        left, separator, right = row.partition(" - ")
        head = left.split()
        tail = right.split()
        if separator and len(head) >= 5 and len(tail) >= 3:
            root = unescape_octal(head[3])
            place = unescape_octal(head[4])
            mounts.append((root, place, tail[0], set(tail[2].split(","))))
    return mounts


def unescape_octal(text: str) -> str:
    r"""Undo the octal escapes of the mount tables (``\040`` for a space)."""
    parts = text.split("\\")
    out = parts[0]
    for part in parts[1:]:
        octal = part[:3]
        if len(octal) == 3 and octal.isdigit():
            out += chr(int(octal, 8)) + part[3:]
        else:
            out += "\\" + part
    return out


def levels_up_to_mount(root: str, mount: str, path: str) -> list[str]:
    """Return the directories from the own cgroup up to the mount point.

    Args:
        root: The directory of the hierarchy that is mounted.
        mount: The mount point.
        path: The own cgroup's path in the hierarchy.

    Returns:
        Only the mount point if the path is not in the mounted part (a private cgroup namespace).
    """
    base = root.rstrip("/")
    # With a private cgroup namespace, a path above its root is shown as "/..".
    if path.startswith("/..") or not (path == base or path.startswith(base + "/") or not base):
        return [mount]
    relative = path[len(base) :].strip("/")
    found = []
    while relative:
        found.append(os.path.join(mount, relative))
        relative = relative.rpartition("/")[0]
    return found + [mount]


def find_controller(
    controller: str, own: dict[str, str], mounts: list[tuple[str, str, str, set[str]]]
) -> CgroupFolders | None:
    """Locate `controller` (``memory``, ``cpu``): in version 1 if mounted, else in version 2."""
    # Version 1 first: on hybrid systems version 2 is mounted too, but without these controllers.
    for root, mount, kind, options in mounts:
        if kind == "cgroup" and controller in options and controller in own:
            return CgroupFolders(
                1, _existing_folders(levels_up_to_mount(root, mount, own[controller]), mount)
            )
    for root, mount, kind, _ in mounts:
        if kind == "cgroup2" and "" in own:
            return CgroupFolders(
                2, _existing_folders(levels_up_to_mount(root, mount, own[""]), mount)
            )
    return None


def _existing_folders(candidates: list[str], mount: str) -> list[str]:
    # In a container the host's path may be listed, while only a part of it is mounted.
    return [path for path in candidates if os.path.isdir(path)] or [mount]


def locate_own_controller(controller: str) -> CgroupFolders | None:
    """Locate a controller of this process."""
    own = (procstat.read_bytes("/proc/self/cgroup") or b"").decode("utf-8", "replace")
    table = (procstat.read_whole("/proc/self/mountinfo") or b"").decode("utf-8", "replace")
    return find_controller(controller, parse_own(own), parse_mounts(table))


class KeptFile:
    """A small pseudo file that is read repeatedly.

    It stays open, and is reopened after an error.
    """

    def __init__(self, path: str, limit: int = 16384) -> None:
        self.path = path
        self._limit = limit
        self._fd = -1

    def read(self) -> bytes | None:
        """Return the current content; None if it cannot be read."""
        # Once more after an error: the group may have been removed and made again.
        for _ in range(2):
            try:
                if self._fd < 0:
                    self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                # From the start each time: a pseudo file is rendered again.
                return os.pread(self._fd, self._limit, 0)
            except OSError:
                self.close()
        return None

    def read_number(self) -> int | None:
        """Return the content as one number; None for ``max``, text or an unreadable file."""
        data = self.read()
        try:
            if data:
                return int(data)
            return None
        except ValueError:
            return None

    def read_fields(self, names: tuple[str, ...] = ()) -> dict[str, int]:
        """Return the values of a file of ``name number`` rows; with `names`, only of these rows."""
        data = self.read() or b""
        if names:
            return pick_fields(data, names)
        return parse_fields(data)

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def parse_fields(data: bytes) -> dict[str, int]:
    """Parse rows of ``name number [unit]``; other rows are ignored."""
    found = {}
    for row in data.splitlines():
        words = row.split()
        if len(words) >= 2:
            try:
                found[words[0].rstrip(b":").decode("ascii", "replace")] = int(words[1])
            except ValueError:
                continue
    return found


def pick_fields(data: bytes, names: tuple[str, ...]) -> dict[str, int]:
    """Parse only the rows with these names, like `parse_fields`.

    It takes a tenth of the time if the file has fifty other rows.
    """
    rows = re.findall(
        r"^({}):?[ \t]+(\d+)(?!\S)".format("|".join(names)), data.decode("ascii", "replace"), re.M
    )
    return {name: int(number) for name, number in rows}


NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page; no real limit is an exbibyte."""

FILES = {
    1: {
        "used": "memory.usage_in_bytes",
        "limit": "memory.limit_in_bytes",
        "peak": "memory.max_usage_in_bytes",
        "stat": "memory.stat",
        "events": "memory.oom_control",
        "swap": "memory.memsw.usage_in_bytes",
        "swap_limit": "memory.memsw.limit_in_bytes",
    },
    2: {
        "used": "memory.current",
        "limit": "memory.max",
        "peak": "memory.peak",
        "stat": "memory.stat",
        "events": "memory.events",
        "swap": "memory.swap.current",
        "swap_limit": "memory.swap.max",
    },
}
"""Files that are read, from the kernel's ``admin-guide/cgroup-v1/memory.rst`` and
``admin-guide/cgroup-v2.rst``.

The ``memsw`` files of version 1 count memory *and* swap; they exist only with swap accounting.
"""
CACHE_FIELD = {1: "total_inactive_file", 2: "inactive_file"}
MEMINFO = ("MemTotal", "MemAvailable", "MemFree", "SwapTotal", "SwapFree")


class MemorySampler:
    """Reads the cgroup level with the tightest limit: the kernel kills processes there.

    Args:
        place: Location of the memory controller; None if it was not found.
        meminfo: File with the host's figures.
    """

    def __init__(self, place: CgroupFolders | None, meminfo: str = "/proc/meminfo") -> None:
        self._meminfo = KeptFile(meminfo)
        self._version: int | None = None
        self._files: dict[str, KeptFile] = {}
        self._below: list[KeptFile] = []
        if place is None:
            return
        names = FILES[place.version]
        usable = [
            level for level in place.levels if os.path.exists(os.path.join(level, names["used"]))
        ]
        if usable:
            self._version = place.version
            level = min(
                usable,
                key=lambda path: (
                    _read_limit(KeptFile(os.path.join(path, names["limit"]))) or NO_LIMIT
                ),
            )
            self._files = {key: KeptFile(os.path.join(level, name)) for key, name in names.items()}
            # Version 1 counts a kill only in the victim's own group, version 2 also in all groups
            # above it.
            if place.version == 1:
                below = usable[: usable.index(level)]
            else:
                below = []
            self._below = [KeptFile(os.path.join(path, names["events"])) for path in below]

    def read(self) -> JsonObject:
        """Return the ``mem`` object of a sample."""
        host = self._meminfo.read_fields(MEMINFO)
        # Kernels before 3.14 have no MemAvailable.
        total = host.get("MemTotal")
        free = host.get("MemAvailable", host.get("MemFree"))
        found: JsonObject = {"cgroup": self._version}
        if total is not None:
            found["host_total"] = total * 1024
            if free is None:
                found["host_used"] = None
            else:
                found["host_used"] = (total - free) * 1024
        swap = host.get("SwapTotal")
        if swap:
            found["host_swap_total"] = swap * 1024
            found["host_swap_used"] = (swap - host.get("SwapFree", swap)) * 1024
        if self._version is not None:
            stat = self._files["stat"].read_fields((CACHE_FIELD[self._version],))
            used = self._files["used"].read_number()
            limit = _read_limit(self._files["limit"])
            found.update(
                used=used,
                limit=limit,
                peak=self._files["peak"].read_number(),
                cache=stat.get(CACHE_FIELD[self._version]),
                oom_kills=self._count_oom_kills(),
            )
            found.update(self._read_swap(used, limit))
        return jsonline.drop_empty(found)

    def _count_oom_kills(self) -> int | None:
        counts = [
            file.read_fields().get("oom_kill") for file in [self._files["events"], *self._below]
        ]
        known = [count for count in counts if count is not None]
        if known:
            return sum(known)
        return None

    def _read_swap(self, used: int | None, limit: int | None) -> dict[str, int | None]:
        swap = self._files["swap"].read_number()
        most = _read_limit(self._files["swap_limit"])
        # Version 1 counts memory and swap together.
        if self._version == 1 and swap is not None:
            swap = max(0, swap - (used or 0))  # two reads: the difference may be below 0
            if most is None or limit is None:
                most = None
            else:
                most = max(0, most - limit)
        return {"swap_used": swap, "swap_limit": most}


def _read_limit(file: KeptFile) -> int | None:
    number = file.read_number()
    if number is None or number >= NO_LIMIT:
        return None
    return number


def oom_event(before: int | None, mem: JsonObject) -> str | None:
    """Return the text of an ``oom-kill`` event if the counter has increased since `before`."""
    now = mem.get("oom_kills")
    if now is None or before is None or now <= before:
        return None
    limit = mem.get("limit")
    if limit:
        where = "the container's limit of %.1f GiB" % (limit / 2**30)
    else:
        where = "the memory of the host"
    return "the kernel killed %d process%s: out of memory at %s" % (
        now - before,
        "es" * (now - before > 1),
        where,
    )


QUOTA_FILES = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}
"""From the kernel's ``scheduler/sched-bwc.rst`` and ``admin-guide/cgroup-v2.rst``."""

THROTTLED_TIME = (("throttled_usec", 1e-6), ("throttled_time", 1e-9))
"""Field of ``cpu.stat`` in version 2 and 1, and its unit in seconds."""


class CpuSampler:
    """Reads CPU limits and load.

    Keeps the previous throttling counters, because only growth matters.
    """

    def __init__(self, place: CgroupFolders | None) -> None:
        self._loadavg = KeptFile("/proc/loadavg")
        self._version = place.version if place else None
        self._levels = place.levels if place else []
        names = QUOTA_FILES[self._version or 2]
        self._files = [
            [KeptFile(os.path.join(level, name)) for name in names] for level in self._levels
        ]
        self._stat = KeptFile(os.path.join(self._levels[0], "cpu.stat")) if self._levels else None
        self._last: tuple[int, int] | None = None
        self._ticks: list[int] = []

    def read(self) -> JsonObject:
        """Return the ``cpu`` object of a sample."""
        load = (self._loadavg.read() or b"").split()
        quotas = [quota for quota in map(self._read_quota, self._files) if quota is not None]
        if quotas:
            quota = min(quotas)
        else:
            quota = None
        cores = _count_cores()
        # A container may be limited by its quota, by its CPU set, or by both.
        granted = [value for value in (quota, cores) if value]
        if self._stat:
            fields = self._stat.read_fields()
        else:
            fields = {}
        return jsonline.drop_empty(
            {
                "quota": quota,
                "cores": cores,
                "usable": min(granted) if granted else None,
                "load1": float(load[0]) if load else None,
                "throttled_pct": self._throttled(fields),
                "throttled_s": throttled_s(fields),
                "steal_pct": self._read_stolen_pct(),
            }
        )

    def _read_stolen_pct(self) -> float | None:
        before = self._ticks
        self._ticks = processor_ticks(procstat.read_bytes("/proc/stat", 256) or b"")
        return stolen_pct(before, self._ticks)

    def _read_quota(self, files: list[KeptFile]) -> float | None:
        if self._version == 2:
            return parse_max(files[0].read() or b"")
        quota = files[0].read_number()
        period = files[1].read_number()
        # Version 1 writes -1 for no quota.
        if quota and period and quota > 0:
            return round(quota / period, 3)
        return None

    def _throttled(self, fields: dict[str, int]) -> float | None:
        if "nr_periods" not in fields:
            return None
        now = (fields["nr_periods"], fields.get("nr_throttled", 0))
        before = self._last
        self._last = now
        return throttled_pct(before, now)


def parse_max(data: bytes) -> float | None:
    """Return the cores of a version 2 ``cpu.max`` ("200000 100000" → 2.0).

    Return None for "max" or bad text.
    """
    words = data.split()
    try:
        return round(int(words[0]) / int(words[1]), 3)
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def throttled_pct(before: tuple[int, int] | None, now: tuple[int, int]) -> float | None:
    """Return the percentage of scheduler periods, since the last reading, that were throttled."""
    # A counter that went back belongs to a new group: no difference can be formed.
    if before is None or now[0] <= before[0]:
        return None
    throttled = max(0, now[1] - before[1])
    return round(100.0 * throttled / (now[0] - before[0]), 1)


def processor_ticks(data: bytes) -> list[int]:
    """Return user, nice, system, idle, iowait, irq, softirq and steal ticks (proc_stat(5)).

    Return [] if unknown.
    """
    words = data.split(b"\n", 1)[0].split()
    if len(words) > 8 and words[0] == b"cpu":
        return [int(word) for word in words[1:9]]
    return []


def stolen_pct(before: list[int], now: list[int]) -> float | None:
    """Return the percentage of CPU time since the last reading that the hypervisor took (steal)."""
    passed = sum(now) - sum(before)
    if not before or not now or passed <= 0:
        return None
    return round(100.0 * max(0, now[7] - before[7]) / passed, 1)


def throttled_s(fields: dict[str, int]) -> float | None:
    """Return the total throttled seconds of all threads, from the fields of ``cpu.stat``."""
    for name, unit in THROTTLED_TIME:
        if name in fields:
            return round(fields[name] * unit, 3)
    return None


def _count_cores() -> int | None:
    try:
        # Not os.cpu_count(): it counts the host's cores, also those that the CPU set forbids.
        return len(os.sched_getaffinity(0))
    except (OSError, AttributeError):
        return os.cpu_count()


PER_CORE, AT_LEAST = 4.0, 8
"""More threads per usable core than this are too many; below 8 threads in total nothing is
reported, since any program has a few sleeping ones.
"""

THROTTLED_PCT, BUSY_PCT = 20.0, 90.0
"""Percentages that show contention: of periods in which the quota ran out, or (without a quota) of
CPU use.
"""


def count_threads(procs: list[JsonObject]) -> int:
    """Return the number of threads of some processes and their forked workers."""
    workers = [proc.get("workers") or {} for proc in procs]
    return sum(int(one.get("threads") or 0) for one in (*procs, *workers))


def oversubscribed(procs: list[JsonObject], cpu: JsonObject) -> bool:
    """Return whether the training has far more threads than cores, and is slowed down by it."""
    usable = cpu.get("usable")
    threads = count_threads(procs)
    if not usable or threads <= max(AT_LEAST, PER_CORE * usable):
        return False
    if cpu.get("quota") is not None and cpu.get("throttled_pct") is not None:
        return float(cpu["throttled_pct"]) >= THROTTLED_PCT
    return sum(proc.get("cpu_pct") or 0.0 for proc in procs) >= BUSY_PCT * float(usable)


class ThreadWatch:
    """Turns the ``oversubscribed`` flag into one event per episode."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = float("-inf")
        self._told = False

    def poll(
        self, procs: list[JsonObject], cpu: JsonObject, now: float | None = None
    ) -> str | None:
        """Return the text of an event if one is due.

        Args:
            procs: Training processes of the sample.
            cpu: The ``cpu`` object of the sample, with its flag.
            now: Monotonic time.
        """
        if now is None:
            now = time.monotonic()
        if not cpu.get("oversubscribed"):
            self._since = None
            # Seconds without contention after which it may be reported again.
            calm = 60.0
            if now - self._last >= calm:
                self._told = False
            return None
        self._last = now
        if self._since is None:
            self._since = now
        # Seconds that the contention must last before it is reported: every program starts with
        # many threads.
        lasting = 10.0
        if self._told or now - self._since < lasting:
            return None
        self._told = True
        threads = count_threads(procs)
        return "the training has %d threads for %g usable cores, and they slow each other down" % (
            threads,
            cpu["usable"],
        )
