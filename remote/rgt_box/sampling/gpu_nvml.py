"""GPU readings through NVML, with the ``pynvml`` module packed with the agent."""

from __future__ import annotations

import os
import sys
import time

from rgt_box import files, jsonline, ownership, place, procstat

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Tuple

    from rgt_wire import JsonObject

    Read = Callable[[Any, Any], JsonObject]
    Table = Tuple[Read, ...]


def _decode_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
    else:
        text = str(value)
    return text[:80] or None


def _read_memory(nvml: Any, handle: Any) -> JsonObject:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"vram_used": int(info.used), "vram_total": int(info.total)}


def _ecc_reader(kind: str) -> Read:
    constant = "NVML_MEMORY_ERROR_TYPE_" + kind.upper()
    field = "ecc_" + kind

    def read_ecc_errors(nvml: Any, handle: Any) -> JsonObject:
        # The volatile counters start when the driver is loaded; the lifetime counters of an old
        # card say little about this run.
        errors = nvml.nvmlDeviceGetTotalEccErrors(
            handle, getattr(nvml, constant), nvml.NVML_VOLATILE_ECC
        )
        return {field: int(errors)}

    return read_ecc_errors


def _read_processes(nvml: Any, handle: Any) -> JsonObject:
    """List the processes that have a compute or graphics context, each once."""
    found: dict[int, int | None] = {}
    unsupported = 0
    # A process may have both contexts, and is then in both lists.
    for kind in ("Compute", "Graphics"):
        listed = _list_processes(nvml, handle, kind)
        if listed is None:
            unsupported += 1
        for process in listed or []:
            used = process.usedGpuMemory  # None if the driver does not report it
            known = found.get(int(process.pid))
            if used is None:
                found[int(process.pid)] = known
            else:
                found[int(process.pid)] = max(int(used), known or 0)
    # "listed" distinguishes an empty list from one that could not be read.
    return {
        "listed": unsupported < 2,
        "procs": [{"pid": pid, "bytes": found[pid]} for pid in sorted(found)],
    }


def _list_processes(nvml: Any, handle: Any, kind: str) -> list[Any] | None:
    # By version: the binding refuses the plain name if the library is older than itself.
    for version in ("v3", "v2"):
        try:
            found: list[Any] = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_{version}")(
                handle
            )
            return found
        except nvml.NVMLError as error:
            if not is_unsupported(nvml, error):
                raise
    return None


NO_SUCH = frozenset((2, 3, 6))
"""NVML_ERROR_INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND: there is no link or slice with that
number.
"""


def _count_nvlinks(nvml: Any, handle: Any) -> JsonObject:
    """Count the NVLinks and those that are up; {} for a card without any."""
    up = there = 0
    # NVML_NVLINK_MAX_LINKS of nvml.h (2026-08, https://docs.nvidia.com/deploy/nvml-api/); current
    # cards have up to 18.
    most_nvlinks = 36
    for link in range(most_nvlinks):
        try:
            up += 1 if nvml.nvmlDeviceGetNvLinkState(handle, link) else 0
        except nvml.NVMLError as error:
            if not there or getattr(error, "value", None) not in NO_SUCH:
                break  # do not query each link of a card without links
            continue
        there += 1
    if there:
        return {"nvlinks": there, "nvlinks_up": up}
    return {}


def _list_mig_slices(nvml: Any, handle: Any) -> JsonObject:
    """List the MIG slices of a card; {} if it is not partitioned."""
    mode, _ = nvml.nvmlDeviceGetMigMode(handle)
    if not mode:
        return {}
    found = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError as error:
            if getattr(error, "value", None) in NO_SUCH:
                continue
            raise
        name = _decode_text(nvml.nvmlDeviceGetName(part)) or ""
        # A slice's name is the card's name followed by its own: "NVIDIA A100-SXM4-80GB MIG
        # 1g.10gb".
        slice_ = {
            "name": name.rpartition("MIG ")[2] or "?",
            "uuid": _decode_text(nvml.nvmlDeviceGetUUID(part)),
        }
        found.append(jsonline.drop_empty(dict(slice_, **_read_memory(nvml, part))))
    return {"mig": found}


CONSTANT: Table = (
    lambda nvml, handle: {
        "clock_max_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    },
    lambda nvml, handle: {"bus": procstat.pci_address(nvml.nvmlDeviceGetPciInfo(handle).busId)},
    lambda nvml, handle: {"uuid": _decode_text(nvml.nvmlDeviceGetUUID(handle))},
    lambda nvml, handle: {"minor": nvml.nvmlDeviceGetMinorNumber(handle)},
    lambda nvml, handle: {"pcie_gen_max": nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)},
    lambda nvml, handle: {"pcie_width_max": nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)},
    lambda nvml, handle: {
        "temp_slow_c": nvml.nvmlDeviceGetTemperatureThreshold(
            handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        )
    },
)
"""Queried once per device."""

FAST: Table = (
    lambda nvml, handle: {"util": nvml.nvmlDeviceGetUtilizationRates(handle).gpu},
    _read_memory,
    lambda nvml, handle: {
        "temp_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    },
    # NVML counts milliwatts.
    lambda nvml, handle: {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0},
    lambda nvml, handle: {"power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0},
    lambda nvml, handle: {"clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)},
    lambda nvml, handle: {
        "throttle_mask": int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    },
)
"""Queried for every sample."""

SLOW: Table = (
    lambda nvml, handle: {"fan_pct": nvml.nvmlDeviceGetFanSpeed(handle)},
    _ecc_reader("corrected"),
    _ecc_reader("uncorrected"),
    lambda nvml, handle: {"pcie_gen": nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)},
    lambda nvml, handle: {"pcie_width": nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)},
    _read_processes,
)
"""Queried every few seconds: they change slowly, and some of them cost the driver a millisecond."""

BESIDE: Table = (_count_nvlinks, _list_mig_slices)
"""Queried as rarely as `SLOW`. Containers may forbid them and many cards have neither, so their
errors are ignored.
"""


def is_unsupported(nvml: Any, error: Any) -> bool:
    """Return whether a call failed only because this card or driver does not support it."""
    silent = (
        getattr(nvml, "NVML_ERROR_NOT_SUPPORTED", 3),
        getattr(nvml, "NVML_ERROR_FUNCTION_NOT_FOUND", 13),
    )
    return getattr(error, "value", None) in silent


def load_pynvml(state_dir: str) -> Any:
    """Import ``pynvml``, compiled once per agent and Python version into the state directory.

    The module is large: compiling it in this process would take 0.1 s and 17 MiB that are never
    freed.

    Raises:
        ImportError: It was not packed.
    """
    import importlib.machinery
    import importlib.util

    cached = os.path.join(
        state_dir, f"pynvml-{place.agent_digest()}-{sys.implementation.cache_tag}.pyc"
    )
    if place.agent_digest() != "dev" and not ownership.is_ours(cached):
        _compile_pynvml(cached)
    if ownership.is_ours(cached):  # only if it is ours, since it is executed
        loader = importlib.machinery.SourcelessFileLoader("pynvml", cached)
        spec = importlib.util.spec_from_loader("pynvml", loader)
        if spec is not None:
            try:
                module = importlib.util.module_from_spec(spec)
                sys.modules["pynvml"] = module  # it looks itself up there
                loader.exec_module(module)
                return module
            except (ImportError, EOFError, ValueError):
                sys.modules.pop("pynvml", None)
                files.unlink_if_exists(cached)
    return __import__("pynvml")


def _compile_pynvml(target: str) -> None:
    import subprocess

    try:
        ownership.ensure_private_folder(os.path.dirname(target))
    except OSError:
        return

    code = (
        "import sys, zipfile, importlib._bootstrap_external as b\n"
        "source = zipfile.ZipFile(sys.argv[1]).read('pynvml.py')\n"
        "data = b._code_to_timestamp_pyc(compile(source, 'pynvml.py', 'exec', dont_inherit=True, "
        "optimize=2))\n"
        "import os; t = sys.argv[2] + '.tmp-' + os.urandom(4).hex()\n"
        "f = os.open(t, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)\n"
        "os.write(f, data); os.close(f); os.rename(t, sys.argv[2])\n"
    )
    try:
        subprocess.call(
            [sys.executable, "-I", "-S", "-c", code, place.code_root(), target],
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # no cache then; the plain import still works


LIBRARY = "libnvidia-ml.so.1"

SLOWLY, RETRY = 10.0, 30.0
"""Seconds between two readings of the slow values, and between two attempts to open a broken
driver.
"""

ABSENT = frozenset((9, 12))
"""NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND: the library exists here, but there is
no driver.
"""

WORDS = {
    18: "driver/library version mismatch: the driver was updated while its old kernel module still "
    "runs; only a restart of the machine helps",
    15: "GPU is lost",
}
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH and NVML_ERROR_GPU_IS_LOST, with the same text for every
library version.
"""


class NvmlMissing(Exception):
    """There is no NVIDIA driver here."""


class NvmlSession:
    """An NVML session, reopened periodically while the driver is broken.

    Args:
        state_dir: Where the compiled binding may be stored.
        binding: The binding; loaded if None.
        cards: Where the kernel module lists its cards.

    Raises:
        NvmlMissing: There is no driver library, no binding, or no device.
        Exception: NVML's error, if the kernel does not list any card either.
    """

    def __init__(
        self, state_dir: str, binding: Any = None, cards: str = procstat.NVIDIA_CARDS
    ) -> None:
        self._nvml = binding or _load_binding(state_dir)
        self._cards = cards
        self._constant: dict[int, JsonObject] = {}
        self._slow: dict[int, tuple[float, JsonObject, list[str]]] = {}
        self._problem: str | None = None
        self._tried = time.monotonic()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            # The kernel lists cards: then there is a driver, and it is broken, which must be shown.
            if error.value in ABSENT and not procstat.nvidia_cards(cards):
                raise
            self._problem = nvml_error_text(error)
            return
        if not self._nvml.nvmlDeviceGetCount():
            raise NvmlMissing("no device")

    def read(self) -> list[JsonObject]:
        """Return one ``Gpu`` per device.

        A device that fails has an error and does not affect the others.
        """
        self._reopen_session()
        if self._problem is not None:
            cards = procstat.nvidia_cards(self._cards) or [{"name": "GPU"}]
            return [
                jsonline.drop_empty(
                    {
                        "index": n,
                        "name": card["name"],
                        "bus": card.get("bus"),
                        "error": self._problem,
                    }
                )
                for n, card in enumerate(cards)
            ]
        return [self._read_device(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _reopen_session(self) -> None:
        now = time.monotonic()
        if self._problem is None or now - self._tried < RETRY:
            return
        self._tried = now
        try:
            self._nvml.nvmlInit()
            self._problem = None
        except self._nvml.NVMLError as error:
            self._problem = nvml_error_text(error)

    def _read_device(self, index: int) -> JsonObject:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            if index not in self._constant:
                self._constant[index] = self._read_constants(index, handle)
        except nvml.NVMLError as error:
            known = self._constant.get(index) or {"index": index, "name": "GPU"}
            return dict(known, error=nvml_error_text(error))
        values = dict(self._constant[index])
        found, errors = self._call_readers(FAST, handle)
        values.update(found)
        now = time.monotonic()
        if index not in self._slow or now - self._slow[index][0] >= SLOWLY:
            slow, failed = self._call_readers(SLOW, handle)
            self._slow[index] = (now, dict(slow, **self._call_readers(BESIDE, handle)[0]), failed)
        values.update(self._slow[index][1])
        errors += self._slow[index][2]
        if errors:
            values["error"] = errors[0]
        else:
            values["error"] = None
        told = jsonline.drop_empty(values)
        if "mig" in values:
            told["mig"] = values[
                "mig"
            ]  # an empty list means MIG without slices, which differs from no MIG
        return told

    def _read_constants(self, index: int, handle: Any) -> JsonObject:
        name = self._nvml.nvmlDeviceGetName(handle)
        if isinstance(name, bytes):
            text = name.decode("utf-8", "replace")
        else:
            text = str(name)
        return jsonline.drop_empty(
            dict(self._call_readers(CONSTANT, handle)[0], index=index, name=text)
        )

    def _call_readers(self, table: Table, handle: Any) -> tuple[JsonObject, list[str]]:
        """Return the values of the calls in `table`, and the errors of failed calls."""
        values: JsonObject = {}
        errors = []
        for read in table:
            try:
                values.update(read(self._nvml, handle))
            except self._nvml.NVMLError as error:
                if not is_unsupported(self._nvml, error):
                    errors.append(nvml_error_text(error))
            except Exception:  # another version's binding or library: not an error of the card
                continue
        return values, errors


def _load_binding(state_dir: str) -> Any:
    import ctypes

    try:
        # Checked first: importing pynvml costs 0.1 s on the many boxes without a driver.
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise NvmlMissing(LIBRARY) from None
    try:
        return load_pynvml(state_dir)
    except ImportError:
        raise NvmlMissing("pynvml is not packed") from None


def nvml_error_text(error: Any) -> str:
    """Return the text of an NVML error."""
    return WORDS.get(getattr(error, "value", 0)) or str(error)
