"""AMD GPUs by their kernel driver's files, and Huawei Ascend accelerators by npu-smi.

Files and units of ``amdgpu``: the kernel's "AMDGPU driver" documentation (https://docs.kernel.org/gpu/amdgpu/thermal.html
and driver-misc.html) and, for the link, ``Documentation/ABI/testing/sysfs-bus-pci``.

The reader of npu-smi's table is written after Huawei's "npu-smi command reference" and outputs that users have
published; it has never run beside a card. A table of another form gives no reading and an error, never a wrong number.
"""

from __future__ import annotations

import os
import re

from rgt_box import background, jsonline, procstat
from rgt_box.sampling.cgroup import KeptFile

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

ROOT = "/sys/class/drm"
VENDOR = b"0x1002"
_CARD = re.compile(r"card(\d+)$")

NUMBERS: tuple[tuple[str, str, float], ...] = (
    ("util", "gpu_busy_percent", 1),
    ("vram_used", "mem_info_vram_used", 1),
    ("vram_total", "mem_info_vram_total", 1),
    ("temp_c", "hwmon/temp1_input", 1e-3),
    ("power_w", "hwmon/power1_average", 1e-6),
    ("power_w", "hwmon/power1_input", 1e-6),
    ("power_limit_w", "hwmon/power1_cap", 1e-6),
    ("clock_mhz", "hwmon/freq1_input", 1e-6),
    ("pcie_width", "current_link_width", 1),
    ("pcie_width_max", "max_link_width", 1),
)
"""Field, file (``hwmon/`` stands for the card's one directory there), factor to our unit.

Cards have either ``power1_average`` or ``power1_input``.
"""

GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s of a lane → PCIe generation."""

LINKS = (("pcie_gen", "current_link_speed"), ("pcie_gen_max", "max_link_speed"))


class Amd:
    """All AMD cards below `root`; ``cards`` is empty where there is none."""

    def __init__(self, root: str = ROOT) -> None:
        try:
            names = os.listdir(root)
        except OSError:
            names = []
        numbers = sorted(int(match.group(1)) for match in map(_CARD.match, names) if match)
        folders = [os.path.join(root, "card%d" % number, "device") for number in numbers]
        self.cards = [Card(folder) for folder in folders if _is_amd(folder)]

    def read(self) -> list[dict[str, Any]]:
        """Return one ``Gpu`` per card."""
        return [card.read(index) for index, card in enumerate(self.cards)]


def _is_amd(folder: str) -> bool:
    # A card without VRAM counters is driven by something else, or is a display alone.
    vendor = procstat.read_bytes(os.path.join(folder, "vendor"), 64) or b""
    return vendor.strip() == VENDOR and os.path.exists(os.path.join(folder, "mem_info_vram_total"))


class Card:
    """One card; its files stay open."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files = [(field, KeptFile(self._path(name)), factor) for field, name, factor in NUMBERS]
        # "AMD Instinct MI300X": only server cards carry a product name.
        product = (
            (procstat.read_bytes(self._path("product_name"), 256) or b"").decode("utf-8", "replace").strip()
        )
        device = (procstat.read_bytes(self._path("device"), 64) or b"").decode("ascii", "replace").strip()
        self._constant = {
            "name": product or ("AMD GPU %s" % device).strip(),
            "bus": procstat.pci_address(os.path.basename(os.path.realpath(folder))),
            "clock_max_mhz": highest_clock(procstat.read_bytes(self._path("pp_dpm_sclk")) or b""),
        }

    def _path(self, name: str) -> str:
        head, _, rest = name.partition("/")
        if head != "hwmon":
            return os.path.join(self._folder, name)
        base = os.path.join(self._folder, "hwmon")
        try:
            folders = sorted(os.listdir(base))
        except OSError:
            folders = []
        return os.path.join(base, folders[0] if folders else "none", rest)

    def read(self, index: int) -> dict[str, Any]:
        """Return one ``Gpu``."""
        values: dict[str, Any] = dict(self._constant, index=index)
        for field, file, factor in self._files:
            number = file.number()
            if number is not None and number >= 0:  # a link that is down says -1
                values[field] = number if factor == 1 else round(number * factor, 3)
        for field, name in LINKS:
            values[field] = generation(procstat.read_bytes(self._path(name), 64) or b"")
        values.update(ecc(procstat.read_bytes(self._path("ras/umc_err_count"), 256) or b""))
        if "vram_total" not in values:
            values["error"] = "the amdgpu driver does not answer"
        return jsonline.compact(values)


def highest_clock(text: bytes) -> int | None:
    """Return the largest clock of ``pp_dpm_sclk`` (rows like ``1: 2100Mhz *``)."""
    clocks = [int(clock) for clock in re.findall(rb":\s*(\d+)\s*mhz", text.lower())]
    return max(clocks) if clocks else None


def generation(text: bytes) -> int | None:
    """Return the PCIe generation of ``16.0 GT/s PCIe``."""
    words = text.decode("ascii", "replace").split()
    return GENERATIONS.get(words[0]) if words else None


def ecc(text: bytes) -> dict[str, int]:
    """Parse ``ras/umc_err_count`` (``ue: 0``, ``ce: 0``)."""
    found = dict(re.findall(rb"\b(ue|ce)\s*:\s*(\d+)", text))
    names = ((b"ce", "ecc_corrected"), (b"ue", "ecc_uncorrected"))
    return {field: int(found[key]) for key, field in names if key in found}


NPU_SMI, NPU_SMI_TIMEOUT = "npu-smi", 8.0
MIB = 1 << 20
_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


def has_npu_smi() -> bool:
    """Tell whether ``npu-smi`` is in PATH."""
    return background.which(NPU_SMI) is not None


def read_ascend() -> list[dict[str, Any]]:
    """Ask ``npu-smi`` (takes up to seconds: call it in a thread).

    Raises:
        TimeoutError: when it hangs.
        RuntimeError: when it fails or prints another table.
    """
    found = parse_npu_smi(background.run_program([NPU_SMI, "info"], NPU_SMI_TIMEOUT))
    if not found:
        raise RuntimeError("%s failed or printed an unknown table" % NPU_SMI)
    return found


def parse_npu_smi(text: str) -> list[dict[str, Any]]:
    """Parse the first table: two rows per chip, of three cells each.

    The upper row: NPU and name, health, then power, temperature and huge pages. The lower row: chip (and, in newer
    versions, its physical number), PCI address, then use of the cores, memory and HBM.
    """
    found: list[dict[str, Any]] = []
    upper: list[str] | None = None
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if "Process id" in row:
            break
        if len(cells) != 3:
            continue
        if upper is not None and procstat.pci_address(cells[1]):
            found.append(_chip(upper, cells, len(found)))
            upper = None
        else:
            words = cells[0].split()
            upper = cells if len(words) == 2 and words[0].isdigit() else None
    return found


def _chip(upper: list[str], lower: list[str], count: int) -> dict[str, Any]:
    power, temperature = (upper[2].split() + ["", ""])[:2]
    pairs = [(int(used), int(total)) for used, total in _PAIR.findall(lower[2])]
    # A 310 has memory of the board alone, a 910 HBM: the pair that is not "0 / 0" is the one that models live in.
    used, total = next((pair for pair in reversed(pairs) if pair[1]), (None, None))
    words = lower[0].split()
    return jsonline.compact(
        {
            "index": int(words[1]) if len(words) > 1 and words[1].isdigit() else count,
            "name": upper[0].split()[1],
            "util": _number((lower[2].split() or [""])[0]),
            "vram_used": None if used is None else used * MIB,
            "vram_total": None if total is None else total * MIB,
            "temp_c": _number(temperature),
            "power_w": _number(power),
            "bus": procstat.pci_address(lower[1]),
            "error": None if upper[1] == "OK" else "npu-smi reports health: %s" % upper[1][:80],
        }
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "-" on the second chip of a card that measures power once
        return None
