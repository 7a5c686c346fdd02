"""GPU readings through NVML, by the ``pynvml`` module packed beside the agent."""

from __future__ import annotations

import os
import sys

from rgt_box import files, jsonline, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

LIBRARY = "libnvidia-ml.so.1"


class NoNvml(Exception):
    """There is no NVIDIA driver here."""


def load_binding(state_dir: str) -> Any:
    """Import ``pynvml``, compiled once per agent and Python into the state directory.

    The module is large: compiling it in this process would cost 0.1 s and 17 MiB that are never given back.

    Raises:
        ImportError: when it was not packed.
    """
    import importlib.machinery
    import importlib.util

    cached = os.path.join(state_dir, "pynvml-%s-%s.pyc" % (place.digest(), sys.implementation.cache_tag))
    if place.digest() != "dev" and not os.path.exists(cached):
        _compile(cached)
    if os.path.exists(cached):
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
                files.unlink(cached)
    return __import__("pynvml")


def _compile(target: str) -> None:
    import subprocess

    code = (
        "import sys, zipfile, importlib._bootstrap_external as b\n"
        "source = zipfile.ZipFile(sys.argv[1]).read('pynvml.py')\n"
        "data = b._code_to_timestamp_pyc(compile(source, 'pynvml.py', 'exec', dont_inherit=True, optimize=2))\n"
        "import os; t = sys.argv[2] + '.tmp-%d' % os.getpid()\n"
        "open(t, 'wb').write(data); os.rename(t, sys.argv[2])\n"
    )
    try:
        subprocess.call(
            [sys.executable, "-I", "-S", "-c", code, place.root(), target],
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # no cache, then: the plain import still works


class Nvml:
    """An open NVML session.

    Raises:
        NoNvml: when there is no driver library, no binding, or no device.
        Exception: what NVML says of a driver that is present but broken.
    """

    def __init__(self, state_dir: str, binding: Any = None) -> None:
        if binding is None:
            import ctypes

            try:
                ctypes.CDLL(LIBRARY)
            except OSError:
                raise NoNvml(LIBRARY) from None
            try:
                binding = load_binding(state_dir)
            except ImportError:
                raise NoNvml("pynvml is not packed") from None
        self._nvml = binding
        binding.nvmlInit()
        if not binding.nvmlDeviceGetCount():
            raise NoNvml("no device")
        self._fixed: dict[int, dict[str, Any]] = {}

    def read(self) -> list[dict[str, Any]]:
        """Return one ``Gpu`` per device; a device that fails has an error, the others are read all the same."""
        return [self._device(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _device(self, index: int) -> dict[str, Any]:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            if index not in self._fixed:
                self._fixed[index] = self._constants(index, handle)
        except nvml.NVMLError as error:
            return {"index": index, "name": "GPU", "error": str(error)}
        values: dict[str, Any] = dict(self._fixed[index])
        errors = []
        for read in self._reads(handle):
            try:
                values.update(read())
            except nvml.NVMLError as error:
                if not _is_unsupported(nvml, error):
                    errors.append(str(error))
            except AttributeError:  # an older binding
                continue
        values["error"] = errors[0] if errors else None
        return jsonline.compact(values)

    def _constants(self, index: int, handle: Any) -> dict[str, Any]:
        name = self._nvml.nvmlDeviceGetName(handle)
        values = {
            "index": index,
            "name": name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name),
        }
        try:
            values["clock_max_mhz"] = self._nvml.nvmlDeviceGetMaxClockInfo(handle, self._nvml.NVML_CLOCK_SM)
        except self._nvml.NVMLError:
            pass
        return values

    def _reads(self, handle: Any) -> list[Callable[[], dict[str, Any]]]:
        nvml = self._nvml

        def memory() -> dict[str, Any]:
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
            return {"vram_used": int(info.used), "vram_total": int(info.total)}

        return [
            lambda: {"util": nvml.nvmlDeviceGetUtilizationRates(handle).gpu},
            memory,
            lambda: {"temp_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)},
            lambda: {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0},
            lambda: {"power_limit_w": nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0},
            lambda: {"clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)},
            lambda: {"throttle_mask": int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))},
        ]


def _is_unsupported(nvml: Any, error: Any) -> bool:
    silent = (
        getattr(nvml, "NVML_ERROR_NOT_SUPPORTED", 3),
        getattr(nvml, "NVML_ERROR_FUNCTION_NOT_FOUND", 13),
    )
    return getattr(error, "value", None) in silent
