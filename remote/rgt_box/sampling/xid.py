"""Xid errors: NVIDIA driver messages in the kernel log about failing GPUs, each reported once.

The log is followed with one system call per tick through ``/dev/kmsg``, or else through ``dmesg``.
Format of a record: the kernel's ``Documentation/ABI/testing/dev-kmsg``.
"""

from __future__ import annotations

import os
import re
import time

from rgt_box import background, files, place, procstat

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import List, Tuple

    from rgt_wire import JsonObject

    Records = List[Tuple[int, str]]

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/"
"""NVIDIA's "Xid Errors", the source of the meanings."""

HARDWARE, SOFTWARE, NOTE = "error", "warn", "info"

MEANINGS: dict[int, tuple[str, str]] = {
    8: (SOFTWARE, "the GPU stopped working on a job"),
    13: (SOFTWARE, "graphics engine exception, usually a program fault"),
    31: (SOFTWARE, "memory page fault, usually an illegal access by the program"),
    32: (HARDWARE, "corrupted command stream, a program or the PCIe link"),
    38: (HARDWARE, "the driver's firmware failed"),
    43: (SOFTWARE, "the GPU stopped working on a program that had failed"),
    45: (NOTE, "a program's work was removed from the GPU, usually after it was killed"),
    46: (HARDWARE, "the GPU stopped working"),
    48: (HARDWARE, "double-bit memory error that ECC cannot correct: the card is broken"),
    54: (HARDWARE, "auxiliary power is not connected"),
    61: (HARDWARE, "internal micro-controller breakpoint"),
    62: (HARDWARE, "internal micro-controller halt: the GPU must be reset"),
    63: (SOFTWARE, "a bad row of memory was set aside; a reset makes it final"),
    64: (HARDWARE, "a bad row of memory could not be set aside: the card is broken"),
    68: (SOFTWARE, "video decoder exception"),
    69: (SOFTWARE, "graphics engine class error"),
    74: (HARDWARE, "NVLink error"),
    79: (HARDWARE, "the GPU has fallen off the bus: lost until the machine restarts"),
    92: (SOFTWARE, "many memory errors that ECC corrected"),
    94: (HARDWARE, "contained memory error: the affected program was ended"),
    95: (HARDWARE, "uncontained memory error: all programs are affected, the GPU must be reset"),
    109: (HARDWARE, "a context switch took too long"),
    110: (HARDWARE, "security fault"),
    119: (HARDWARE, "the GPU's system processor (GSP) does not answer"),
    120: (HARDWARE, "the GPU's system processor (GSP) failed"),
    121: (SOFTWARE, "corrected error of the link between chips"),
    140: (HARDWARE, "memory error that was not recovered"),
    143: (HARDWARE, "the GPU could not be initialised"),
    149: (HARDWARE, "NVLink error"),
    154: (SOFTWARE, "the driver changed the recovery action for this GPU"),
}
"""Number → (level of the event, short meaning): only the ones that occur in practice."""

LINE = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]+(?::[0-9A-Fa-f.]+)+)[^)]*\): (\d+)(?:,\s*(.*))?"
)


class XidReport:
    """One report.

    Attributes:
        bus: PCI address of the GPU, normalised by `procstat.pci_address`; "" if invalid.
        number: The Xid number.
        detail: The rest of the line.
        at_us: Time in microseconds of the kernel's clock.
    """

    __slots__ = ("at_us", "bus", "detail", "number")

    def __init__(self, bus: str, number: int, detail: str, at_us: int) -> None:
        self.bus = bus
        self.number = number
        self.detail = detail
        self.at_us = at_us

    @property
    def level(self) -> str:
        """Level of its event; an unknown number is a warning."""
        return MEANINGS.get(self.number, (SOFTWARE, ""))[0]

    @property
    def meaning(self) -> str:
        """Its meaning as text."""
        known = MEANINGS.get(self.number)
        if known:
            return known[1]
        return self.detail[:120] or f"see {SOURCE}"


def parse_xid(text: str, at_us: int = 0) -> XidReport | None:
    """Parse a message of the kernel log; None if it is not an Xid."""
    match = LINE.search(text)
    if match is None:
        return None
    bus, number, detail = match.groups()
    return XidReport(
        procstat.pci_address(bus) or "", int(number), (detail or "").strip()[:300], at_us
    )


RECORD = 1 << 14
"""Size of a read in bytes: the kernel refuses one that is smaller than the record."""


DMESG_EVERY, DMESG_TIMEOUT = 60.0, 5.0
_ROW = re.compile(r"^(?:<\d+>)?\[\s*(\d+)\.(\d{6})\] (.*)$")


class KernelLogUnreadable(Exception):
    """The kernel log cannot be read here; the message says why."""


def kernel_log_path() -> str:
    """Return the device; ``RGT_KMSG`` replaces it with a file."""
    return os.environ.get("RGT_KMSG") or "/dev/kmsg"


class KernelLogDevice:
    """The device ``/dev/kmsg``: each read returns one record, and reports when there are no more.

    Args:
        device: Its path.
        word: Records without it are dropped at once: a whole kernel log would use too much memory.

    Raises:
        OSError: It cannot be opened or read.
    """

    def __init__(self, device: str, word: bytes) -> None:
        self._word = word
        self._rest = b""
        # Non-blocking: a read at the end of the log would wait for the next message.
        self._fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._first: bytes | None = None
        try:
            self._first = (
                self._read_record()
            )  # opening is allowed in more environments than reading
        except OSError:
            os.close(self._fd)
            raise

    def _read_record(self) -> bytes | None:
        """Return the next bytes.

        B"" at the end of a file, None if the device has no more records.
        """
        try:
            return os.read(self._fd, RECORD)
        except BlockingIOError:
            return None
        except (
            BrokenPipeError
        ):  # overwritten before they were read; the next read continues after them
            return self._read_record()

    def new_records(self) -> Records:
        """Return the messages since the last call as (kernel clock in microseconds, text)."""
        found: Records = []
        data = self._first
        self._first = None
        # Maximum number of records read at once, so that a flood does not delay a sample; more than
        # any kernel keeps by default.
        most = 20000
        for _ in range(most):
            # /dev/kmsg returns one record per read; a file (in tests) returns many.
            data = data or self._read_record()
            if not data:
                break
            *rows, self._rest = (self._rest + data).split(b"\n")
            rows = [row for row in rows if self._word in row]
            found += [record for record in map(parse_record, rows) if record is not None]
            data = None
        return found

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)


def parse_record(row: bytes) -> tuple[int, str] | None:
    """Parse ``6,339,5140900,-;message``.

    Return None for a continuation line (leading space) or invalid text.
    """
    head, separator, text = row.partition(b";")
    words = head.split(b",")
    if not separator or row[:1] == b" " or len(words) < 3 or not words[2].isdigit():
        return None
    return int(words[2]), text.decode("utf-8", "replace")


class DmesgProgram:
    """The ``dmesg`` program, run every minute: some containers forbid only the device.

    Args:
        word: Records without it are dropped.

    Raises:
        OSError: There is no such program, or it has no permission either.
    """

    def __init__(self, word: bytes) -> None:
        self._word = word.decode()
        if background.which("dmesg") is None:
            raise FileNotFoundError("dmesg")
        self._first: Records | None = self._read_matching()
        self._job = background.Background(self._read_matching, DMESG_EVERY, DMESG_TIMEOUT * 2)
        self._seen: Records | None = None

    def _read_matching(self) -> Records:
        text = background.try_program(["dmesg"], DMESG_TIMEOUT)
        if text is None:
            raise PermissionError("dmesg")
        return [record for record in parse_dmesg(text) if self._word in record[1]]

    def new_records(self) -> Records:
        """Return the messages that are new since the last call."""
        if self._first is not None:
            found = self._first
            self._first = None
            self._job.poll()
            return found
        found, error = self._job.poll()
        if error or not found or found is self._seen:
            return []
        # The same list object means that the job has not run again since.
        before = self._seen
        self._seen = found
        # The program prints the whole log each time.
        if before:
            last = before[-1][0]
        else:
            last = -1
        return [record for record in found if record[0] > last]


def parse_dmesg(text: str) -> Records:
    """Parse rows like ``[   12.345678] message``; others are ignored."""
    found = []
    for row in text.splitlines():
        match = _ROW.match(row)
        if match:
            at = int(match.group(1)) * 1000000 + int(match.group(2))
            found.append((at, match.group(3)))
    return found


def open_log(word: bytes) -> KernelLogDevice | DmesgProgram:
    """Open the kernel log for the records that contain `word`.

    Raises:
        KernelLogUnreadable: Neither the device nor the program works.
    """
    try:
        return KernelLogDevice(kernel_log_path(), word)
    except OSError as error:
        reason = background.error_text(error)
    try:
        return DmesgProgram(word)
    except (OSError, TimeoutError):
        raise KernelLogUnreadable(f"the kernel log is unreadable ({reason})") from None


QUIET = 60.0
"""Seconds in which the same Xid of the same GPU makes only one event: a failing GPU may log
hundreds.
"""


class XidWatch:
    """Follows the kernel log for Xids.

    Args:
        state_dir: Where the position in the log is stored, so that the next recorder reports
            nothing twice.
        remember: False for a reader that must not move that position.

    Attributes:
        last: PCI address → number of the last Xid of that GPU in the log.
        broken: The same, limited to Xids of broken hardware.
        limited: Why the log cannot be read; None if it can.
    """

    def __init__(self, state_dir: str, remember: bool = True) -> None:
        self._file = os.path.join(state_dir, "xid.json")
        self._remember = remember
        self._boot = place.boot_id()
        known = files.read_json(self._file) or {}
        # The kernel's clock starts again with every boot.
        if known.get("boot") == self._boot:
            told = known.get("at_us")
        else:
            told = None
        if isinstance(told, int):
            self._told = told
        else:
            self._told = -1
        self._pending: dict[tuple[str, int], list[XidReport]] = {}
        self._quiet: dict[tuple[str, int], float] = {}
        self.last: dict[str, int] = {}
        self.broken: dict[str, int] = {}
        self.limited: str | None = None
        self._log: KernelLogDevice | DmesgProgram | None = None
        try:
            self._log = open_log(b"NVRM: Xid")
        except KernelLogUnreadable as error:
            self.limited = f"Xid: {error}"

    def poll_events(self, indexes: dict[str, int]) -> list[dict[str, str]]:
        """Return the events that are due.

        Args:
            indexes: PCI address → index of the GPU.
        """
        if self._log is not None:
            records = self._log.new_records()
        else:
            records = []
        newest = self._told
        for at_us, text in records:
            report = parse_xid(text, at_us)
            if report is None:
                continue
            self.last[report.bus] = report.number
            # Kept apart: a later software Xid must not hide broken hardware.
            if report.level == HARDWARE:
                self.broken[report.bus] = report.number
            # Older ones were reported by an earlier recorder, but still say how the GPU is.
            if at_us > self._told:
                self._pending.setdefault((report.bus, report.number), []).append(report)
                newest = max(newest, at_us)
        if newest > self._told:
            self._told = newest
            self._save_state()
        if self._pending:
            return self._take_due_events(indexes)
        return []

    def _take_due_events(self, indexes: dict[str, int]) -> list[dict[str, str]]:
        now = time.monotonic()
        due = [key for key in self._pending if now - self._quiet.get(key, float("-inf")) >= QUIET]
        events = []
        for key in due:
            reports = self._pending.pop(key)
            self._quiet[key] = now
            events.append(
                {
                    "kind": "xid",
                    "text": xid_event_text(reports, indexes.get(key[0])),
                    "level": reports[-1].level,
                }
            )
        return events

    def _save_state(self) -> None:
        if not self._remember:
            return
        state: JsonObject = {"boot": self._boot, "at_us": self._told}
        try:
            files.write_json(self._file, state)
        except OSError:
            pass  # a duplicate report is better than none


def xid_event_text(reports: list[XidReport], index: int | None) -> str:
    """Return the text of an event for reports of one GPU and number."""
    report = reports[-1]
    gpu = f"GPU {'?' if index is None else index} ({report.bus or 'unknown address'})"
    text = "%s: Xid %d, %s" % (gpu, report.number, report.meaning)
    if report.detail and report.detail[:120] != report.meaning:
        text += f" [{report.detail[:160]}]"
    if len(reports) > 1:
        text += ", %d times" % len(reports)
    age = age_s(report.at_us)
    # Age in seconds from which an event says how long ago it was: it may have happened before
    # monitoring began.
    old_s = 90.0
    return text + (f", {_format_span(age)} ago" if age is not None and age > old_s else "")


def age_s(at_us: int) -> float | None:
    """Return how many seconds ago a kernel time was; None if /proc/uptime cannot be read."""
    up = (procstat.read_bytes("/proc/uptime", 128) or b"").split()
    if up:
        return max(0.0, float(up[0]) - at_us / 1e6)
    return None


def _format_span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return "%d %s" % (seconds // size, unit)
    return "%d s" % seconds
