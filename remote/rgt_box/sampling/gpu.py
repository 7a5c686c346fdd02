"""Choose where GPU readings come from: NVML, nvidia-smi, AMD's sysfs, npu-smi, a replayed trace, or nothing."""

from __future__ import annotations

import time

from rgt_box import background, procstat
from rgt_box.sampling import gpu_nvml, gpu_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.sampling import gpu_trace

THROTTLE = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}
"""Bits of the driver's mask that slow a busy GPU; "idle" and "clocks set by an application" are no throttling.

Source: "NvmlClocksEventReasons" in the NVML API reference.
"""

INTERNAL = ("throttle_mask", "listed", "minor")
"""What the sources tell beside the fields of a ``Gpu``."""

KEPT = ("index", "name", "bus", "uuid")
"""What is still said of a card that does not answer any more."""

USERS_EVERY, HOLDERS_EVERY = 10.0, 60.0
"""Seconds between two mappings of the driver's pids, and between two looks into every process's descriptors."""

UNEXPLAINED = 1 << 30
"""Bytes that nobody listed accounts for, from which on holders are looked for; the driver itself needs less."""

FOREIGN = "GPU users: the driver numbers them by another pid namespace; they are shown unmapped"
SILENT = "GPU users: the driver does not list who uses the memory, as it does in containers"


class GpuSampler:
    """Reads the GPUs from one source, chosen once.

    Args:
        trace: Path of a recorded trace; used only where no real GPU answers.
        state_dir: Where compiled code of the NVML binding may be kept.

    Attributes:
        source: nvml, smi, amd, ascend, sim or none.
    """

    def __init__(self, trace: str | None, state_dir: str) -> None:
        self._problems: list[str] = []
        self._trace: gpu_trace.Trace | None = None
        self._job: background.Background | None = None
        self._known: dict[int, dict[str, Any]] = {}
        self._users = Users()
        self.source = self._choose(trace, state_dir)

    def _choose(self, trace: str | None, state_dir: str) -> str:
        nvml = self._try("NVML", lambda: gpu_nvml.Nvml(state_dir))
        if nvml is not None:
            self._job = background.Background(nvml.read, 0.0, 5.0)
            return "nvml"
        # Imported here: most boxes need none of the others, and each costs memory for as long as the agent lives.
        from rgt_box.sampling import gpu_smi

        if gpu_smi.available():
            self._job = background.Background(gpu_smi.Smi().read, 2.0, 15.0)
            return "smi"
        from rgt_box.sampling import gpu_amd, gpu_ascend

        amd = self._try("AMD", gpu_amd.Amd)
        if amd is not None and amd.cards:
            self._job = background.Background(amd.read, 0.0, 5.0)
            return "amd"
        if gpu_ascend.available():
            self._job = background.Background(gpu_ascend.read, 5.0, 15.0)
            return "ascend"
        if trace:
            from rgt_box.sampling import gpu_trace

            self._trace = self._try("GPU trace", lambda: gpu_trace.load(trace))
        return "sim" if self._trace else "none"

    def _try(self, what: str, make: Any) -> Any:
        try:
            return make()
        except gpu_nvml.NoNvml:
            return None
        except Exception as error:  # a broken driver or trace must not cost the other samplers
            self._problems.append("%s: %s" % (what, background.describe(error)))
            return None

    @property
    def nvidia(self) -> bool:
        """Tell whether there is an NVIDIA driver, whose Xids are worth following."""
        return self.source in ("nvml", "smi")

    @property
    def limited(self) -> list[str]:
        """What does not work here, in words."""
        return self._problems + self._users.limited

    @property
    def indexes(self) -> dict[str, int]:
        """PCI address → index."""
        return {gpu["bus"]: index for index, gpu in self._known.items() if gpu.get("bus")}

    def raw(self, wait: float) -> tuple[list[dict[str, Any]], str | None]:
        """Return what the source says by itself, with its fields beside those of a ``Gpu``; and why it says nothing."""
        if self._job is None:
            return [], None
        found, error = self._job.poll(wait)
        return [dict(gpu) for gpu in found or []], error

    def read(self, at: float, procs: list[dict[str, Any]], wait: float = 0.0) -> list[dict[str, Any]]:
        """Return the ``gpus`` list of a sample.

        Args:
            at: Now (epoch seconds); a trace is replayed by it.
            procs: Training processes of this sample: a trace shows its busy rows while one lives.
            wait: Seconds to wait for a driver that is slow to answer.
        """
        if self._trace is not None:
            return self._trace.rows(at, procs)
        if self._job is None:
            return []
        found, error = self._job.poll(wait or 0.2)
        if error is not None:
            known = list(self._known.values()) or [{"index": 0, "name": "GPU"}]
            return [dict(gpu, error=error) for gpu in known]
        gpus = [dict(gpu) for gpu in found or []]
        if self.nvidia:
            self._users.fill(gpus)
        present = {gpu["index"] for gpu in gpus}
        lost = [
            dict(gpu, error="no longer listed by the driver")
            for index, gpu in sorted(self._known.items())
            if index not in present and gpus
        ]
        for gpu in gpus:
            if "error" not in gpu or gpu["index"] not in self._known:
                self._known[gpu["index"]] = {key: gpu[key] for key in KEPT if key in gpu}
        return [_named(gpu) for gpu in gpus] + lost


class Users:
    """Adds to the readings whose pids are ours, and who holds a card unknown to its driver.

    Attributes:
        limited: What of this cannot be told here.
    """

    def __init__(self) -> None:
        self.limited: list[str] = []
        self._initial = gpu_users.in_initial_namespace()
        self._boot = procstat.boot_time()
        self._mapped = self._looked = float("-inf")
        self._comparable: bool | None = None
        self._orphans: dict[int, list[dict[str, Any]]] = {}

    def fill(self, gpus: list[dict[str, Any]]) -> None:
        """Complete readings in place."""
        now = time.monotonic()
        if now - self._mapped >= USERS_EVERY:
            self._mapped = now
            self._comparable = gpu_users.map_pids(gpus, gpu_users.prefix(), self._initial)
            self._look(gpus, now)
        for gpu in gpus:
            orphans = self._orphans.get(gpu["index"])
            if orphans:
                gpu["orphans"] = orphans

    def _look(self, gpus: list[dict[str, Any]], now: float) -> None:
        if self._comparable and any("listed" not in gpu for gpu in gpus):
            # Every program opens all cards: one whose users cannot be read makes all its users look unknown.
            self._comparable = None
        unexplained = [gpu for gpu in gpus if gpu_users.unexplained(gpu) >= UNEXPLAINED]
        reasons = {False: [FOREIGN], None: [SILENT] if unexplained else []}
        self.limited = reasons.get(self._comparable, [])
        if not unexplained or not self._comparable:
            self._orphans = {}
        elif now - self._looked >= HOLDERS_EVERY:
            self._looked = now
            held = gpu_users.holders(gpu_users.prefix())
            found = gpu_users.orphans(gpus, held)
            self._orphans = {
                index: [who for who in (gpu_users.describe(pid, self._boot) for pid in pids) if who]
                for index, pids in found.items()
            }


def _named(gpu: dict[str, Any]) -> dict[str, Any]:
    names = throttle_names(gpu.get("throttle_mask") or 0)
    shown = {key: value for key, value in gpu.items() if key not in INTERNAL}
    return dict(shown, throttle=names) if names else shown


def throttle_names(mask: int) -> list[str]:
    """Return the names of the throttle reasons in the driver's bit mask."""
    return [name for bit, name in THROTTLE.items() if mask & bit]
