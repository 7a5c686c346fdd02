"""What is asked of NVML, as tables: each entry is one call that may be unsupported without costing the others.

Meaning and units: NVML API reference, "Device Queries" (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

from rgt_box.sampling import pci

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Tuple

    Read = Callable[[Any, Any], Dict[str, Any]]
    Table = Tuple[Read, ...]


def _text(value: Any) -> str | None:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:80] or None


def _memory(nvml: Any, handle: Any) -> dict[str, Any]:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"vram_used": int(info.used), "vram_total": int(info.total)}


def _ecc(kind: str) -> Read:
    constant, field = "NVML_MEMORY_ERROR_TYPE_" + kind.upper(), "ecc_" + kind

    def read(nvml: Any, handle: Any) -> dict[str, Any]:
        # The volatile counters begin at the load of the driver: an old card's whole life says little of this run.
        errors = nvml.nvmlDeviceGetTotalEccErrors(handle, getattr(nvml, constant), nvml.NVML_VOLATILE_ECC)
        return {field: int(errors)}

    return read


def _processes(nvml: Any, handle: Any) -> dict[str, Any]:
    """List the processes that have a compute or graphics context, each once."""
    found: dict[int, int | None] = {}
    unsupported = 0
    for kind in ("Compute", "Graphics"):
        listed = _listed(nvml, handle, kind)
        if listed is None:
            unsupported += 1
        for process in listed or []:
            used = process.usedGpuMemory  # None where the driver does not say
            known = found.get(int(process.pid))
            found[int(process.pid)] = known if used is None else max(int(used), known or 0)
    # "listed" tells an empty list, which means something, from one that could not be had.
    return {"listed": unsupported < 2, "procs": [{"pid": pid, "bytes": found[pid]} for pid in sorted(found)]}


def _listed(nvml: Any, handle: Any, kind: str) -> list[Any] | None:
    # By version: the binding refuses the plain name where the library is older than itself.
    for version in ("v3", "v2"):
        try:
            found: list[Any] = getattr(nvml, "nvmlDeviceGet%sRunningProcesses_%s" % (kind, version))(handle)
            return found
        except nvml.NVMLError as error:
            if not is_unsupported(nvml, error):
                raise
    return None


CONSTANT: Table = (
    lambda nvml, handle: {"clock_max_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)},
    lambda nvml, handle: {"bus": pci.normal(nvml.nvmlDeviceGetPciInfo(handle).busId)},
    lambda nvml, handle: {"uuid": _text(nvml.nvmlDeviceGetUUID(handle))},
    lambda nvml, handle: {"minor": nvml.nvmlDeviceGetMinorNumber(handle)},
    lambda nvml, handle: {"pcie_gen_max": nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)},
    lambda nvml, handle: {"pcie_width_max": nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)},
)
"""Asked once per device."""

FAST: Table = (
    lambda nvml, handle: {"util": nvml.nvmlDeviceGetUtilizationRates(handle).gpu},
    _memory,
    lambda nvml, handle: {"temp_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)},
    lambda nvml, handle: {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0},
    lambda nvml, handle: {"power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0},
    lambda nvml, handle: {"clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)},
    lambda nvml, handle: {"throttle_mask": int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))},
)
"""Asked for every sample."""

SLOW: Table = (
    _ecc("corrected"),
    _ecc("uncorrected"),
    lambda nvml, handle: {"pcie_gen": nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)},
    lambda nvml, handle: {"pcie_width": nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)},
    _processes,
)
"""Asked every few seconds: they change slowly, and some of them cost the driver a millisecond."""


def is_unsupported(nvml: Any, error: Any) -> bool:
    """Tell whether a call failed only because this card or driver does not know it."""
    silent = (
        getattr(nvml, "NVML_ERROR_NOT_SUPPORTED", 3),
        getattr(nvml, "NVML_ERROR_FUNCTION_NOT_FOUND", 13),
    )
    return getattr(error, "value", None) in silent
