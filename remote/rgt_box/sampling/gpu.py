"""GPUs: the source of the readings (NVML, nvidia-smi, AMD, npu-smi, a trace), and their processes.

The driver may report PIDs of another namespace than ours (in most rented containers). A PID is
mapped to a local process only if that is proven; otherwise it is shown unmapped.
"""

from __future__ import annotations

import os
import time

from rgt_box import background, files, masking, procstat
from rgt_box.sampling import gpu_nvml
from rgt_box.sampling.processes import AGENT

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject


TOOLS = frozenset(
    (
        "Xorg", "dcgm-exporter", "dcgmi", "gpustat", "nv-fabricmanager", "nv-hostengine",
        "nvidia-persistenced",
        "nvidia-powerd", "nvidia-smi", "nvitop", "nvtop",
    )
)  # fmt: skip
"""Programs that have a device open only to monitor it, without using its memory."""


def device_prefix() -> str:
    """Return the path prefix of the cards' device files.

    Tests set it with ``RGT_NVIDIA_DEVICES``.
    """
    return os.environ.get("RGT_NVIDIA_DEVICES") or "/dev/nvidia"


def in_initial_namespace() -> bool:
    """Return whether the PIDs in /proc are the host's."""
    try:
        # Inode of the host's own PID namespace: PROC_PID_INIT_INO in the kernel's
        # include/linux/proc_ns.h.
        initial_namespace = 0xEFFFFFFC
        return os.stat("/proc/self/ns/pid").st_ino == initial_namespace
    except OSError:
        return False


def open_cards(pid: int, start: str) -> set[int]:
    """Return the minor numbers of the cards that a process has open; empty without permission."""
    folder = "/proc/%d/fd" % pid
    found: set[int] = set()
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(folder + "/" + name)
        except OSError:
            continue
        rest = target[len(start) :]
        # Only /dev/nvidia0 and so on: any CUDA program also opens nvidiactl and nvidia-uvm.
        if target.startswith(start) and rest.isdigit():
            found.add(int(rest))
    return found


def find_card_holders(start: str) -> dict[int, set[int]]:
    """Return pid → minor numbers of its open cards, for all readable processes except our own."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            cards = open_cards(int(name), start)
            if cards:
                found[int(name)] = cards
    return found


def is_onlooker(words: list[str]) -> bool:
    """Return whether a command line is a tool or agent that only monitors GPUs."""
    program = ""
    if words:
        program = os.path.basename(words[0]).split(":")[0]
    return program in TOOLS or any(AGENT.search(word) for word in words[:5])


def map_pids(gpus: list[JsonObject], start: str, initial: bool) -> bool | None:
    """Mark the driver's PIDs that are proven to be of our namespace.

    On the host every live PID is. In a container, one PID that does not have its card open proves
    that the driver uses another namespace; then none is mapped, not even one that matches a local
    process by chance.

    Args:
        gpus: Readings with ``procs``; each proven entry gets ``mapped``.
        start: Path prefix of the device files.
        initial: Whether we are in the host's own namespace.

    Returns:
        Whether the driver's lists can be compared with local processes; None if they are empty,
        which in a container may mean "none" or "not reported".
    """
    listed = [(gpu, user) for gpu in gpus for user in gpu.get("procs") or []]
    if initial:
        for _, user in listed:
            _set_mapped(user, os.path.exists("/proc/%d" % user["pid"]))
        return all(gpu.get("listed") for gpu in gpus) or None
    if not listed:
        return None
    proven = all(
        # All or none: in another namespace, a few numbers match local pids by chance.
        gpu.get("minor", gpu["index"]) in open_cards(user["pid"], start)
        for gpu, user in listed
    )
    for _, user in listed:
        _set_mapped(user, proven)
    return proven


def _set_mapped(user: JsonObject, mapped: bool) -> None:
    user.pop("mapped", None)  # the reader defaults to false
    if mapped:
        user["mapped"] = True


def unexplained(gpu: JsonObject) -> int:
    """Return the used memory of a card that no listed process accounts for.

    0 if a share is unknown.
    """
    users = gpu.get("procs") or []
    # NVML reports no size in some containers; the difference would then be wrong.
    if any(user.get("bytes") is None for user in users):
        return 0
    used = int(gpu.get("vram_used") or 0)
    return max(0, used - sum(int(user["bytes"]) for user in users))


def describe_user(pid: int, boot: float) -> JsonObject | None:
    """Return ``pid``, ``started``, ``cmd`` of a live process; None if it has ended."""
    ticks = procstat.start_ticks(pid)
    if ticks is None:
        return None
    words = procstat.read_cmdline(pid)
    return {
        "pid": pid,
        "started": round(boot + ticks / procstat.CLOCK_TICKS, 2),
        "cmd": " ".join(masking.mask_words(words))[:300],
    }


def find_unlisted_users(gpus: list[JsonObject], held: dict[int, set[int]]) -> dict[int, list[int]]:
    """Return index → PIDs that have the card open but are not listed by the driver on any card.

    Args:
        gpus: Readings whose pids are mapped (`map_pids` was true).
        held: Result of `find_card_holders`.
    """
    known = {user["pid"] for gpu in gpus for user in gpu.get("procs") or []}
    unknown = [
        pid
        for pid in sorted(held)
        if pid not in known and not is_onlooker(procstat.read_cmdline(pid))
    ]
    return {
        gpu["index"]: [pid for pid in unknown if gpu.get("minor", gpu["index"]) in held[pid]]
        for gpu in gpus
    }


TRACE_ROW = ("util", "vram_used", "temp_c", "power_w", "clock_mhz")


class GpuTrace:
    """A recorded trace, one row per second: ``busy`` rows while a training runs, else ``idle``.

    Raises:
        ValueError: The trace does not have the documented form.
    """

    def __init__(self, data: JsonObject) -> None:
        gpus = data.get("gpus")
        if not isinstance(gpus, list) or not gpus:
            raise ValueError('no "gpus" list')
        self._gpus = [self._check_gpu(gpu) for gpu in gpus]

    @staticmethod
    def _check_gpu(gpu: Any) -> JsonObject:
        if not isinstance(gpu, dict) or not isinstance(gpu.get("index"), int):
            raise ValueError("a GPU without an index")
        for phase in ("busy", "idle"):
            rows = gpu.get(phase)
            if not isinstance(rows, list) or any(
                not isinstance(row, list) or len(row) > len(TRACE_ROW) for row in rows
            ):
                raise ValueError('GPU %d: "%s" is not a list of rows' % (gpu["index"], phase))
        return gpu

    def gpu_rows(self, at: float, procs: list[JsonObject]) -> list[JsonObject]:
        """Return the ``gpus`` of a sample taken `at` (epoch seconds) with `procs`."""
        live = [proc for proc in procs if proc.get("state") not in ("Z", "X")]
        start = min((float(proc["started"]) for proc in live), default=0.0)
        # Rows count from the start of the training, so that a demo shows the same curve each time.
        second = max(0, int(at - start))
        return [
            self._gpu_row(gpu, gpu["busy"] if live else gpu["idle"], second) for gpu in self._gpus
        ]

    @staticmethod
    def _gpu_row(gpu: JsonObject, rows: list[list[Any]], second: int) -> JsonObject:
        shown: JsonObject = {
            "index": gpu["index"],
            "name": str(gpu.get("name", "GPU")),
            "vram_total": gpu.get("vram_total"),
            "power_limit_w": gpu.get("power_limit_w"),
            "clock_max_mhz": gpu.get("clock_max_mhz"),
            "sim": True,
        }
        if rows:
            shown.update(zip(TRACE_ROW, rows[second % len(rows)]))
        return {key: value for key, value in shown.items() if value is not None}


def load_trace(path: str) -> GpuTrace:
    """Read a trace file.

    Raises:
        ValueError: It is missing, not JSON, or not of the documented form.
    """
    data = files.read_json(path)
    if data is None:
        raise ValueError(f"{path} is missing or is not a JSON object")
    return GpuTrace(data)


THROTTLE = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}
"""Bits of the driver's mask that slow a busy GPU; "idle" and "clocks set by an application" are not
throttling.

Source: "NvmlClocksEventReasons" in the NVML API reference.
"""

INTERNAL = ("throttle_mask", "listed", "minor")
"""Fields of the sources that are not part of a ``Gpu``."""

KEPT = ("index", "name", "bus", "uuid")
"""Fields still reported for a card that no longer answers."""

USERS_EVERY, HOLDERS_EVERY = 10.0, 60.0
"""Seconds between two mappings of the driver's PIDs, and between two scans of every process's
descriptors.
"""

UNEXPLAINED = 1 << 30
"""Unaccounted bytes that start a search for processes with the card open; the driver itself needs
less.
"""

FOREIGN = (
    "GPU processes: the driver reports them with the PIDs of another namespace, which are "
    "shown as they are"
)
SILENT = "GPU processes: the driver does not list them, as is usual in containers"


class GpuSampler:
    """Reads the GPUs from one source, chosen once.

    Args:
        trace: Path of a recorded trace; used only if no real GPU answers.
        state_dir: Where compiled code of the NVML binding may be stored.

    Attributes:
        source: nvml, smi, amd, ascend, sim or none.
        has_answered: Whether the source has returned anything yet, including an error.
    """

    def __init__(self, trace: str | None, state_dir: str) -> None:
        self._problems: list[str] = []
        self._trace: GpuTrace | None = None
        self._job: background.Background | None = None
        self._known: dict[int, JsonObject] = {}
        self._users = GpuUsers()
        self.has_answered = False
        self.source = self._choose_source(trace, state_dir)

    def _choose_source(self, trace: str | None, state_dir: str) -> str:
        nvml = self._try_source("NVML", lambda: gpu_nvml.NvmlSession(state_dir))
        if nvml is not None:
            # In a thread: NVML calls hang when a card has fallen off the bus.
            self._job = background.Background(nvml.read, 0.0, 5.0)
            return "nvml"
        # Imported here: most boxes do not need it, and it uses memory for the agent's whole life.
        from rgt_box.sampling import gpu_without_nvml

        if gpu_without_nvml.has_nvidia_smi():
            self._job = background.Background(gpu_without_nvml.NvidiaSmi().read, 2.0, 15.0)
            return "smi"
        amd = self._try_source("AMD", gpu_without_nvml.AmdCards)
        if amd is not None and amd.cards:
            self._job = background.Background(amd.read, 0.0, 5.0)
            return "amd"
        if gpu_without_nvml.has_npu_smi():
            self._job = background.Background(gpu_without_nvml.read_ascend, 5.0, 15.0)
            return "ascend"
        if trace:
            self._trace = self._try_source("GPU trace", lambda: load_trace(trace))
        if self._trace:
            return "sim"
        return "none"

    def _try_source(self, what: str, make: Any) -> Any:
        try:
            return make()
        except gpu_nvml.NvmlMissing:
            return None
        except Exception as error:  # a broken driver or trace must not stop the other samplers
            self._problems.append(f"{what}: {background.error_text(error)}")
            return None

    @property
    def has_nvidia_driver(self) -> bool:
        """Whether there is an NVIDIA driver, whose Xids can be followed."""
        return self.source in ("nvml", "smi")

    @property
    def limited(self) -> list[str]:
        """What does not work here, as texts."""
        return self._problems + self._users.limited

    @property
    def index_by_bus(self) -> dict[str, int]:
        """PCI address → index."""
        return {gpu["bus"]: index for index, gpu in self._known.items() if gpu.get("bus")}

    def read_raw(self, wait: float) -> tuple[list[JsonObject], str | None]:
        """Return the source's own reading, with extra fields, and its error if any."""
        if self._job is None:
            return [], None
        found, error = self._job.poll(wait)
        return [dict(gpu) for gpu in found or []], error

    def read(self, at: float, procs: list[JsonObject], wait: float = 0.0) -> list[JsonObject]:
        """Return the ``gpus`` list of a sample.

        Args:
            at: Now (epoch seconds); selects the row of a trace.
            procs: Training processes of this sample: a trace shows its busy rows while one is
                alive.
            wait: Seconds to wait for a slow driver.
        """
        if self._trace is not None:
            return self._trace.gpu_rows(at, procs)
        if self._job is None:
            return []
        found, error = self._job.poll(wait or 0.2)
        self.has_answered = self.has_answered or found is not None or error is not None
        if error is not None:
            # Keep the rows: a card that hangs must not vanish from the screen.
            known = list(self._known.values()) or [{"index": 0, "name": "GPU"}]
            return [dict(gpu, error=error) for gpu in known]
        gpus = [dict(gpu) for gpu in found or []]
        if self.has_nvidia_driver:
            self._users.complete_readings(gpus)
        present = {gpu["index"] for gpu in gpus}
        lost = [
            dict(gpu, error="no longer listed by the driver")
            for index, gpu in sorted(self._known.items())
            if index not in present and gpus
        ]
        for gpu in gpus:
            # A failing card's row has fewer fields; it must not replace the good one.
            if "error" not in gpu or gpu["index"] not in self._known:
                self._known[gpu["index"]] = {key: gpu[key] for key in KEPT if key in gpu}
        return [_public_fields(gpu) for gpu in gpus] + lost


class GpuUsers:
    """Maps the driver's PIDs to ours, and adds processes that have a card open but are not listed.

    Attributes:
        limited: Which of this is not possible here.
    """

    def __init__(self) -> None:
        self.limited: list[str] = []
        self._initial = in_initial_namespace()
        self._boot = procstat.boot_time()
        self._mapped = self._looked = float("-inf")
        self._comparable: bool | None = None
        self._orphans: dict[int, list[JsonObject]] = {}

    def complete_readings(self, gpus: list[JsonObject]) -> None:
        """Complete readings in place."""
        now = time.monotonic()
        if now - self._mapped >= USERS_EVERY:
            self._mapped = now
            self._comparable = map_pids(gpus, device_prefix(), self._initial)
            self._find_unlisted(gpus, now)
        for gpu in gpus:
            orphans = self._orphans.get(gpu["index"])
            if orphans:
                gpu["orphans"] = orphans

    def _find_unlisted(self, gpus: list[JsonObject], now: float) -> None:
        if self._comparable and any("listed" not in gpu for gpu in gpus):
            # Every program opens all cards: if one card's list is missing, its processes would look
            # unlisted on all cards.
            self._comparable = None
        short = [gpu for gpu in gpus if unexplained(gpu) >= UNEXPLAINED]
        reasons = {False: [FOREIGN], None: [SILENT] if short else []}
        self.limited = reasons.get(self._comparable, [])
        if not short or not self._comparable:
            self._orphans = {}
        elif now - self._looked >= HOLDERS_EVERY:
            self._looked = now
            held = find_card_holders(device_prefix())
            found = find_unlisted_users(gpus, held)
            self._orphans = {
                index: [who for who in (describe_user(pid, self._boot) for pid in pids) if who]
                for index, pids in found.items()
            }


def _public_fields(gpu: JsonObject) -> JsonObject:
    names = throttle_names(gpu.get("throttle_mask") or 0)
    shown = {key: value for key, value in gpu.items() if key not in INTERNAL}
    if names:
        return dict(shown, throttle=names)
    return shown


def throttle_names(mask: int) -> list[str]:
    """Return the names of the throttle reasons in the driver's bit mask."""
    return [name for bit, name in THROTTLE.items() if mask & bit]
