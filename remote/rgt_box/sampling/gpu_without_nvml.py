"""GPU readings without NVML: AMD from sysfs, Huawei Ascend from npu-smi, and nvidia-smi.

Files and units of ``amdgpu``: the kernel's "AMDGPU driver" documentation
(https://docs.kernel.org/gpu/amdgpu/thermal.html and driver-misc.html) and, for the link,
``Documentation/ABI/testing/sysfs-bus-pci``.

The parser of npu-smi's table follows Huawei's "npu-smi command reference" and outputs that users
have published; it has never been tested with a card. A table of another form gives no reading and
an error, never a wrong number.
"""

from __future__ import annotations

import os
import re
import time

from rgt_box import background, jsonline, procstat
from rgt_box.sampling.cgroup import KeptFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

    from rgt_wire import JsonObject


AMD_ROOT = "/sys/class/drm"
AMD_VENDOR = b"0x1002"
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
"""Field, file (``hwmon/`` is the card's only directory there), factor to our unit.

Cards have either ``power1_average`` or ``power1_input``.
"""

GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s per lane → PCIe generation."""

LINKS = (("pcie_gen", "current_link_speed"), ("pcie_gen_max", "max_link_speed"))


class AmdCards:
    """All AMD cards below `root`; ``cards`` may be empty."""

    def __init__(self, root: str = AMD_ROOT) -> None:
        try:
            names = os.listdir(root)
        except OSError:
            names = []
        numbers = sorted(int(match.group(1)) for match in map(_CARD.match, names) if match)
        folders = [os.path.join(root, "card%d" % number, "device") for number in numbers]
        self.cards = [AmdCard(folder) for folder in folders if _is_amd(folder)]

    def read(self) -> list[JsonObject]:
        """Return one ``Gpu`` per card."""
        return [card.read(index) for index, card in enumerate(self.cards)]


def _is_amd(folder: str) -> bool:
    # A card without VRAM counters has another driver, or only drives a display.
    vendor = procstat.read_bytes(os.path.join(folder, "vendor"), 64) or b""
    return vendor.strip() == AMD_VENDOR and os.path.exists(
        os.path.join(folder, "mem_info_vram_total")
    )


class AmdCard:
    """One card; its files stay open."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files = [
            (field, KeptFile(self._file_path(name)), factor) for field, name, factor in NUMBERS
        ]
        # Only server cards have a product name, such as "AMD Instinct MI300X".
        product = (
            (procstat.read_bytes(self._file_path("product_name"), 256) or b"")
            .decode("utf-8", "replace")
            .strip()
        )
        device = (
            (procstat.read_bytes(self._file_path("device"), 64) or b"")
            .decode("ascii", "replace")
            .strip()
        )
        self._constant = {
            "name": product or (f"AMD GPU {device}").strip(),
            "bus": procstat.pci_address(os.path.basename(os.path.realpath(folder))),
            "clock_max_mhz": highest_clock(
                procstat.read_bytes(self._file_path("pp_dpm_sclk")) or b""
            ),
        }

    def _file_path(self, name: str) -> str:
        head, _, rest = name.partition("/")
        if head != "hwmon":
            return os.path.join(self._folder, name)
        base = os.path.join(self._folder, "hwmon")
        try:
            folders = sorted(os.listdir(base))
        except OSError:
            folders = []
        return os.path.join(base, folders[0] if folders else "none", rest)

    def read(self, index: int) -> JsonObject:
        """Return one ``Gpu``."""
        values: JsonObject = dict(self._constant, index=index)
        for field, file, factor in self._files:
            number = file.read_number()
            if number is not None and number >= 0:  # a link that is down reads -1
                if factor == 1:
                    values[field] = number
                else:
                    values[field] = round(number * factor, 3)
        for field, name in LINKS:
            values[field] = generation(procstat.read_bytes(self._file_path(name), 64) or b"")
        values.update(
            parse_ecc_counts(procstat.read_bytes(self._file_path("ras/umc_err_count"), 256) or b"")
        )
        if "vram_total" not in values:
            values["error"] = "the amdgpu driver does not answer"
        return jsonline.drop_empty(values)


def highest_clock(text: bytes) -> int | None:
    """Return the largest clock of ``pp_dpm_sclk`` (rows like ``1: 2100Mhz *``)."""
    clocks = [int(clock) for clock in re.findall(rb":\s*(\d+)\s*mhz", text.lower())]
    if clocks:
        return max(clocks)
    return None


def generation(text: bytes) -> int | None:
    """Return the PCIe generation of ``16.0 GT/s PCIe``."""
    words = text.decode("ascii", "replace").split()
    if words:
        return GENERATIONS.get(words[0])
    return None


def parse_ecc_counts(text: bytes) -> dict[str, int]:
    """Parse ``ras/umc_err_count`` (``ue: 0``, ``ce: 0``)."""
    found = dict(re.findall(rb"\b(ue|ce)\s*:\s*(\d+)", text))
    names = ((b"ce", "ecc_corrected"), (b"ue", "ecc_uncorrected"))
    return {field: int(found[key]) for key, field in names if key in found}


NPU_SMI, NPU_SMI_TIMEOUT = "npu-smi", 8.0
MIB = 1 << 20
_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


def has_npu_smi() -> bool:
    """Return whether ``npu-smi`` is in PATH."""
    return background.which(NPU_SMI) is not None


def read_ascend() -> list[JsonObject]:
    """Query ``npu-smi`` (takes up to seconds: call it in a thread).

    Raises:
        TimeoutError: It hangs.
        RuntimeError: It fails or prints another table.
    """
    found = parse_npu_smi(background.run_program([NPU_SMI, "info"], NPU_SMI_TIMEOUT))
    if not found:
        raise RuntimeError(f"{NPU_SMI} failed or printed an unknown table")
    return found


def parse_npu_smi(text: str) -> list[JsonObject]:
    """Parse the first table: two rows per chip, with three cells each.

    The upper row: NPU and name, health, then power, temperature and huge pages. The lower row: chip
    (and, in newer versions, its physical number), PCI address, then core use, memory and HBM.
    """
    found: list[JsonObject] = []
    upper: list[str] | None = None
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        if "Process id" in row:
            break
        if len(cells) != 3:
            continue
        if upper is not None and procstat.pci_address(cells[1]):
            found.append(_parse_chip(upper, cells, len(found)))
            upper = None
        else:
            words = cells[0].split()
            if len(words) == 2 and words[0].isdigit():
                upper = cells
            else:
                upper = None
    return found


def _parse_chip(upper: list[str], lower: list[str], count: int) -> JsonObject:
    power, temperature = (upper[2].split() + ["", ""])[:2]
    pairs = [(int(used), int(total)) for used, total in _PAIR.findall(lower[2])]
    # A 310 has only board memory, a 910 has HBM: the pair that is not "0 / 0" is the memory that
    # models use.
    used, total = next((pair for pair in reversed(pairs) if pair[1]), (None, None))
    words = lower[0].split()
    return jsonline.drop_empty(
        {
            "index": int(words[1]) if len(words) > 1 and words[1].isdigit() else count,
            "name": upper[0].split()[1],
            "util": _parse_number((lower[2].split() or [""])[0]),
            "vram_used": None if used is None else used * MIB,
            "vram_total": None if total is None else total * MIB,
            "temp_c": _parse_number(temperature),
            "power_w": _parse_number(power),
            "bus": procstat.pci_address(lower[1]),
            "error": None if upper[1] == "OK" else f"npu-smi reports health: {upper[1][:80]}",
        }
    )


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "-" on the second chip of a card that measures power once
        return None


# GPU readings from ``nvidia-smi``, for boxes whose NVML library cannot be loaded.


if TYPE_CHECKING:
    Columns = List[Tuple[str, str, float]]

SMI_PROGRAM, SMI_TIMEOUT = "nvidia-smi", 8.0
SMI_USERS_EVERY_S = 10.0
"""Seconds between two process lists: each starts the program."""

SMI_COLUMNS: Columns = [
    ("index", "index", 1),
    ("name", "name", 0),
    ("utilization.gpu", "util", 1),
    ("memory.used", "vram_used", MIB),
    ("memory.total", "vram_total", MIB),
    ("temperature.gpu", "temp_c", 1),
    ("power.draw", "power_w", 1),
    ("power.limit", "power_limit_w", 1),
    ("clocks.sm", "clock_mhz", 1),
    ("clocks.max.sm", "clock_max_mhz", 1),
    ("clocks_throttle_reasons.active", "throttle_mask", -1),
    ("pci.bus_id", "bus", 0),
    ("pcie.link.gen.current", "pcie_gen", 1),
    ("pcie.link.gen.max", "pcie_gen_max", 1),
    ("pcie.link.width.current", "pcie_width", 1),
    ("pcie.link.width.max", "pcie_width_max", 1),
    ("ecc.errors.corrected.volatile.total", "ecc_corrected", 1),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", 1),
    ("uuid", "uuid", 0),
]
"""Query name (``nvidia-smi --help-query-gpu``), field, and factor to our unit (0 = text, -1 =
hexadecimal mask).
"""

MASK = 10
SMI_COLUMNS_RENAMED: Columns = [
    *SMI_COLUMNS[:MASK],
    ("clocks_event_reasons.active", "throttle_mask", -1),
    *SMI_COLUMNS[MASK + 1 :],
]
"""The mask was renamed in driver 535; an unknown name makes the whole query fail."""

SMI_QUERIES = (SMI_COLUMNS, SMI_COLUMNS_RENAMED, SMI_COLUMNS[:MASK])

WHOLE_NUMBERS = frozenset(
    ("index", "vram_used", "vram_total", "pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max")
    + ("ecc_corrected", "ecc_uncorrected")
)


def has_nvidia_smi() -> bool:
    """Return whether ``nvidia-smi`` is in PATH."""
    return background.which(SMI_PROGRAM) is not None


class NvidiaSmi:
    """Runs ``nvidia-smi``; remembers which query this driver supports."""

    def __init__(self) -> None:
        self._queries = list(SMI_QUERIES)
        self._users: dict[str, list[JsonObject]] | None = None
        self._asked: float | None = None

    def read(self) -> list[JsonObject]:
        """Return one ``Gpu`` per card (takes 20 ms to seconds: call it in a thread).

        Raises:
            TimeoutError: It hangs.
            RuntimeError: It fails or prints no table.
        """
        gpus = self._query_cards()
        now = time.monotonic()
        if self._asked is None or now - self._asked >= SMI_USERS_EVERY_S:
            self._asked, self._users = now, _query_users()
        if self._users is not None:
            gpus = [
                jsonline.drop_empty(
                    dict(gpu, listed=True, procs=self._users.get(gpu.get("bus", "")))
                )
                for gpu in gpus
            ]
        return gpus

    def _query_cards(self) -> list[JsonObject]:
        for columns in self._queries:
            query = "--query-gpu=" + ",".join(name for name, _, _ in columns)
            text = background.run_program(
                [SMI_PROGRAM, query, "--format=csv,noheader,nounits"], SMI_TIMEOUT
            )
            if text.strip():
                # The first one that the driver accepts: the names of the columns depend on its
                # version.
                self._queries = [columns]
                return parse_smi(text, columns)
        self._queries = list(SMI_QUERIES)  # another driver may have been loaded
        raise RuntimeError("nvidia-smi failed")


def _query_users() -> dict[str, list[JsonObject]] | None:
    query = "--query-compute-apps=gpu_bus_id,pid,used_memory"
    text = background.try_program(
        [SMI_PROGRAM, query, "--format=csv,noheader,nounits"], SMI_TIMEOUT
    )
    if text is None:
        return None
    return parse_users(text)


def parse_users(text: str) -> dict[str, list[JsonObject]]:
    """Parse the list of processes into PCI address → ``pid`` and ``bytes``."""
    found: dict[str, list[JsonObject]] = {}
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        bus = procstat.pci_address(cells[0])
        if len(cells) == 3 and bus and cells[1].isdigit():
            used = _convert_cell(cells[2], "vram_used", MIB)
            found.setdefault(bus, []).append({"pid": int(cells[1]), "bytes": used})
    return found


def parse_smi(text: str, columns: Columns = SMI_COLUMNS) -> list[JsonObject]:
    """Parse its CSV; a cell like ``[N/A]`` is unknown, a row without an index is ignored."""
    found = []
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        pairs = zip(cells, columns)
        values = {field: _convert_cell(cell, field, factor) for cell, (_, field, factor) in pairs}
        if values.get("index") is None:
            continue
        if "lost" in row.lower() or "unknown error" in row.lower():
            values["error"] = f"nvidia-smi reports: {row.strip()[:200]}"
        values["name"] = values.get("name") or "GPU"
        if (uuid := values.get("uuid") or "").startswith(("GPU-", "MIG-")):
            values["uuid"] = uuid
        else:
            values["uuid"] = None
        values["bus"] = procstat.pci_address(values.get("bus"))
        found.append(jsonline.drop_empty(values))
    return found


def _convert_cell(cell: str, field: str, factor: float) -> Any:
    if factor == 0:
        return cell or None
    try:
        if factor < 0:
            return int(cell, 16)
        number = float(cell) * factor
    except ValueError:
        return None
    if field in WHOLE_NUMBERS:
        return int(number)
    return number
