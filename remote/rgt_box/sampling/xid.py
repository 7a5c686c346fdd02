"""Xid: what the NVIDIA kernel module writes into the kernel log when a GPU fails."""

from __future__ import annotations

import re

from rgt_box.sampling import pci

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/"
"""NVIDIA's "Xid Errors": where the meanings come from."""

HARDWARE, SOFTWARE, NOTE = "error", "warn", "info"

MEANINGS: dict[int, tuple[str, str]] = {
    8: (SOFTWARE, "the GPU stopped working on a job"),
    13: (SOFTWARE, "graphics engine exception, mostly a fault of the program"),
    31: (SOFTWARE, "memory page fault, mostly an illegal access by the program"),
    32: (HARDWARE, "corrupted command stream, a program or the PCIe link"),
    38: (HARDWARE, "the driver's firmware failed"),
    43: (SOFTWARE, "the GPU stopped working on a program that had failed"),
    45: (NOTE, "a program's work was taken off the GPU, mostly after it was killed"),
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
    94: (HARDWARE, "contained memory error: the program that met it was ended"),
    95: (HARDWARE, "uncontained memory error: all programs are affected, the GPU must be reset"),
    109: (HARDWARE, "a context switch took too long"),
    110: (HARDWARE, "security fault"),
    119: (HARDWARE, "the GPU's system processor (GSP) does not answer"),
    120: (HARDWARE, "the GPU's system processor (GSP) failed"),
    121: (SOFTWARE, "corrected error of the link between chips"),
    140: (HARDWARE, "memory error that was not recovered"),
    143: (HARDWARE, "the GPU could not be initialised"),
    149: (HARDWARE, "NVLink error"),
    154: (SOFTWARE, "the driver changed what it takes to recover this GPU"),
}
"""Number → (level of the event, short meaning): only the ones that people meet."""

LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]+(?::[0-9A-Fa-f.]+)+)[^)]*\): (\d+)(?:,\s*(.*))?")


class Xid:
    """One report.

    Attributes:
        bus: PCI address of the GPU, as `rgt_box.sampling.pci.normal` spells it; "" where it makes no sense.
        number: Which error.
        detail: The rest of the line.
        at_us: When, in microseconds of the kernel's clock.
    """

    __slots__ = ("at_us", "bus", "detail", "number")

    def __init__(self, bus: str, number: int, detail: str, at_us: int) -> None:
        self.bus, self.number, self.detail, self.at_us = bus, number, detail, at_us

    @property
    def level(self) -> str:
        """Level of its event; an unknown number may be anything."""
        return MEANINGS.get(self.number, (SOFTWARE, ""))[0]

    @property
    def meaning(self) -> str:
        """Return it in words."""
        known = MEANINGS.get(self.number)
        return known[1] if known else self.detail[:120] or "see %s" % SOURCE


def parse(text: str, at_us: int = 0) -> Xid | None:
    """Parse a message of the kernel log; None when it is something else."""
    match = LINE.search(text)
    if match is None:
        return None
    bus, number, detail = match.groups()
    return Xid(pci.normal(bus) or "", int(number), (detail or "").strip()[:300], at_us)
