"""Choose where GPU readings come from: NVML, else nvidia-smi, else a replayed trace, else nothing."""

from __future__ import annotations

from rgt_box import background
from rgt_box.sampling import gpu_nvml, gpu_smi, gpu_trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

THROTTLE = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}
"""Bits of the driver's mask that slow a busy GPU; "idle" and "clocks set by an application" are no throttling."""


class GpuSampler:
    """Reads the GPUs from one source, chosen once.

    Args:
        trace: Path of a recorded trace; used only where no real GPU answers.
        state_dir: Where compiled code of the NVML binding may be kept.

    Attributes:
        source: nvml, smi, sim or none.
        limited: What does not work here, in words.
    """

    def __init__(self, trace: str | None, state_dir: str) -> None:
        self.limited: list[str] = []
        self.source = "none"
        self._trace: gpu_trace.Trace | None = None
        self._job: background.Background | None = None
        self._last: list[dict[str, Any]] = []
        nvml = self._try("NVML", lambda: gpu_nvml.Nvml(state_dir))
        if nvml is not None:
            self.source, self._job = "nvml", background.Background(nvml.read, 0.0, 5.0)
        elif gpu_smi.available():
            self.source, self._job = "smi", background.Background(gpu_smi.read, 2.0, 15.0)
        elif trace:
            self._trace = self._try("GPU trace", lambda: gpu_trace.load(trace))
            self.source = "sim" if self._trace else "none"

    def _try(self, what: str, make: Any) -> Any:
        try:
            return make()
        except gpu_nvml.NoNvml:
            return None
        except Exception as error:  # a broken driver or trace must not cost the other samplers
            self.limited.append("%s: %s" % (what, background.describe(error)))
            return None

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
        if error is None:
            self._last = [_named(gpu) for gpu in found or []]
            return self._last
        known = [{"index": gpu["index"], "name": gpu["name"]} for gpu in self._last]
        return [dict(gpu, error=error) for gpu in known or [{"index": 0, "name": "GPU"}]]


def _named(gpu: dict[str, Any]) -> dict[str, Any]:
    mask = gpu.pop("throttle_mask", None)
    names = throttle_names(mask or 0)
    return dict(gpu, throttle=names) if names else gpu


def throttle_names(mask: int) -> list[str]:
    """Return the names of the throttle reasons in the driver's bit mask."""
    return [name for bit, name in THROTTLE.items() if mask & bit]
