"""Read /proc: processes, whose pids are trusted only with their start time, and NVIDIA's cards."""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessStat:
    """The fields of ``/proc/PID/stat`` that the agent uses.

    Times are clock ticks, `rss` is bytes.
    """

    __slots__ = ("cpu", "group", "pid", "ppid", "rss", "session", "start", "state", "terminal",
                 "threads")  # fmt: skip

    def __init__(self, pid: int, text: bytes) -> None:
        # After "PID (NAME) " fields[0] is the third one of proc(5), the state.
        fields = text[text.rindex(b")") + 2 :].split()  # the name may contain spaces and brackets
        self.pid = pid
        self.state = fields[0].decode("ascii", "replace")
        self.ppid = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.terminal = int(fields[4])
        self.cpu = int(fields[11]) + int(fields[12])
        self.threads = int(fields[17])
        self.start = int(fields[19])
        self.rss = int(fields[21]) * PAGE


def read_bytes(path: str, limit: int = 65536) -> bytes | None:
    """Return up to `limit` bytes of a /proc or /sys file; None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # ESRCH: the process ended between the open and the read.
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_whole(path: str, limit: int = 4 << 20) -> bytes | None:
    """Return up to `limit` bytes of a /proc file with many rows; None if it cannot be read.

    One read of a table such as the mounts returns no more than a page (seq_file in the kernel's
    fs/seq_file.c).
    """
    found = []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while limit > 0:
            data = os.read(fd, limit)
            if not data:
                break
            found.append(data)
            limit -= len(data)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(found)


def read_stat(pid: int) -> ProcessStat | None:
    """Return the process's figures; None if it has ended."""
    text = read_bytes("/proc/%d/stat" % pid, 4096)
    try:
        if text:
            return ProcessStat(pid, text)
        return None
    except (ValueError, IndexError):
        return None


def start_ticks(pid: int) -> int | None:
    """Return a live process's start time in ticks since boot; None for a dead one or a zombie."""
    stat = read_stat(pid)
    # A zombie still has its pid, but no work to end.
    if stat is None or stat.state in "ZX":
        return None
    return stat.start


def is_alive(pid: int, ticks: int | None) -> bool:
    """Return whether `pid` is still the process that started at `ticks`."""
    # pid 0 and negative ones mean process groups to kill(2).
    return ticks is not None and pid > 0 and start_ticks(pid) == ticks


def read_open_flags(pid: int, handle: str) -> int | None:
    """Return the flags with which a process has a file open (proc_pid_fdinfo(5)); None = unknown."""
    text = read_bytes("/proc/%d/fdinfo/%s" % (pid, handle)) or b""
    for line in text.splitlines():
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8)
    return None


def boot_time() -> float:
    """Return the kernel's boot time (epoch seconds); 0 if /proc/stat does not have it."""
    for row in (read_bytes("/proc/stat", 1 << 20) or b"").splitlines():
        if row.startswith(b"btime "):
            return float(row.split()[1])
    return 0.0


def read_cmdline(pid: int, limit: int = 4096) -> list[str]:
    """Return the words of the command line; [] for kernel threads and dead processes."""
    return split_cmdline(read_bytes("/proc/%d/cmdline" % pid, limit) or b"")


def split_cmdline(cmdline: bytes) -> list[str]:
    """Return the words of a command line in /proc's format."""
    if cmdline:
        return cmdline.rstrip(b"\0").decode("utf-8", "replace").split("\0")
    return []


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process, 0 if it has ended."""
    fields = (read_bytes("/proc/%d/statm" % pid, 256) or b"").split()
    if len(fields) > 1:
        return int(fields[1]) * PAGE
    return 0


def release_freed_memory() -> bool:
    """Return free heap memory to the system (malloc_trim(3)); False if that is not possible.

    Modules are loaded between buffers that are freed again, and glibc on its own returns only
    memory at the heap's end. ctypes is not loaded for this, because it would use as much memory.
    """
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    else:
        trim = None
    if trim is None:
        return False
    trim(0)
    return True


def process_root_prefix(pid: int) -> str:
    """Return the path prefix of the files as a process sees them.

    Return "" if it sees the same as we do.
    """
    try:
        if os.stat("/proc/%d/ns/mnt" % pid).st_ino != os.stat("/proc/self/ns/mnt").st_ino:
            return "/proc/%d/root" % pid
    except OSError:
        pass
    return ""


NVIDIA_CARDS = "/proc/driver/nvidia/gpus"
"""One directory per card, written by the kernel module itself: it exists even if the user-space
library does not work.
"""

_ADDRESS = re.compile(r"^(?:([0-9a-f]+):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$")


def pci_address(address: Any) -> str | None:
    """Normalise a PCI address to the form ``0000:3b:00.0``; None if it is not one.

    NVML writes ``00000000:3B:00.0``, the kernel log ``0000:3b:00``.
    """
    if isinstance(address, bytes):
        text = address.decode("ascii", "replace")
    else:
        text = str(address or "")
    match = _ADDRESS.match(text.strip().lower())
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return (
        f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or '0'}"
    )


def nvidia_cards(root: str = NVIDIA_CARDS) -> list[JsonObject]:
    """Return ``bus``, ``name`` and ``minor`` of every card that the NVIDIA kernel module knows.

    The rows are described in the driver's README, "The /proc Interface". Cards are sorted by
    address.
    """
    try:
        folders = sorted(os.listdir(root))
    except OSError:
        return []
    found = []
    for folder in folders:
        text = (read_bytes(os.path.join(root, folder, "information")) or b"").decode(
            "utf-8", "replace"
        )
        rows = dict(row.split(":", 1) for row in text.splitlines() if ":" in row)
        minor = rows.get("Device Minor", "").strip()
        found.append(
            {
                "bus": pci_address(rows.get("Bus Location")) or pci_address(folder),
                "name": rows.get("Model", "").strip() or "GPU",
                # The minor is the number in /dev/nvidiaN, which differs from NVML's index.
                "minor": int(minor) if minor.isdigit() else None,
            }
        )
    return found


def split_environment(block: bytes) -> dict[str, str]:
    """Return the variables of ``/proc/PID/environ``; entries without ``=`` are ignored."""
    found = {}
    for item in block.split(b"\0"):
        name, sign, value = item.partition(b"=")
        if sign:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found
