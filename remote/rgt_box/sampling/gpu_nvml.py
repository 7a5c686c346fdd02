"""GPU readings through NVML, by the ``pynvml`` module packed beside the agent."""

from __future__ import annotations

import time

from rgt_box import jsonline
from rgt_box.sampling import nvml_binding, pci
from rgt_box.sampling.gpu_nvml_reads import CONSTANT, FAST, SLOW, is_unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.sampling.gpu_nvml_reads import Table

LIBRARY = "libnvidia-ml.so.1"

SLOWLY, RETRY = 10.0, 30.0
"""Seconds between two readings of what changes slowly, and between two tries to open a broken driver."""

ABSENT = frozenset((9, 12))
"""NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND: the library lies here, but there is no driver."""

WORDS = {
    18: "driver/library version mismatch: the driver was updated while its old kernel module still runs; "
    "only a restart of the machine helps",
    15: "GPU is lost",
}
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH and NVML_ERROR_GPU_IS_LOST, said the same way by every version of the library."""


class NoNvml(Exception):
    """There is no NVIDIA driver here."""


class Nvml:
    """An NVML session, opened again and again while the driver is broken.

    Args:
        state_dir: Where the compiled binding may be kept.
        binding: The binding; loaded when None.
        cards: Where the kernel module lists its cards.

    Raises:
        NoNvml: when there is no driver library, no binding, or no device.
        Exception: what NVML says where neither it nor the kernel knows of a card.
    """

    def __init__(self, state_dir: str, binding: Any = None, cards: str = pci.DRIVER) -> None:
        self._nvml = binding or _binding(state_dir)
        self._cards = cards
        self._constant: dict[int, dict[str, Any]] = {}
        self._slow: dict[int, tuple[float, dict[str, Any], list[str]]] = {}
        self._problem: str | None = None
        self._tried = time.monotonic()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            if error.value in ABSENT and not pci.driver_cards(cards):
                raise
            self._problem = describe(error)
            return
        if not self._nvml.nvmlDeviceGetCount():
            raise NoNvml("no device")

    def read(self) -> list[dict[str, Any]]:
        """Return one ``Gpu`` per device; a device that fails has an error, the others are read all the same."""
        self._reopen()
        if self._problem is not None:
            cards = pci.driver_cards(self._cards) or [{"name": "GPU"}]
            return [
                jsonline.compact(
                    {"index": n, "name": card["name"], "bus": card.get("bus"), "error": self._problem}
                )
                for n, card in enumerate(cards)
            ]
        return [self._device(index) for index in range(self._nvml.nvmlDeviceGetCount())]

    def _reopen(self) -> None:
        now = time.monotonic()
        if self._problem is None or now - self._tried < RETRY:
            return
        self._tried = now
        try:
            self._nvml.nvmlInit()
            self._problem = None
        except self._nvml.NVMLError as error:
            self._problem = describe(error)

    def _device(self, index: int) -> dict[str, Any]:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            if index not in self._constant:
                self._constant[index] = self._identify(index, handle)
        except nvml.NVMLError as error:
            known = self._constant.get(index) or {"index": index, "name": "GPU"}
            return dict(known, error=describe(error))
        values = dict(self._constant[index])
        found, errors = self._ask(FAST, handle)
        values.update(found)
        now = time.monotonic()
        if index not in self._slow or now - self._slow[index][0] >= SLOWLY:
            self._slow[index] = (now, *self._ask(SLOW, handle))
        values.update(self._slow[index][1])
        errors += self._slow[index][2]
        values["error"] = errors[0] if errors else None
        return jsonline.compact(values)

    def _identify(self, index: int, handle: Any) -> dict[str, Any]:
        name = self._nvml.nvmlDeviceGetName(handle)
        text = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
        return jsonline.compact(dict(self._ask(CONSTANT, handle)[0], index=index, name=text))

    def _ask(self, table: Table, handle: Any) -> tuple[dict[str, Any], list[str]]:
        """Return what the calls of `table` gave, and what the failing ones said."""
        values: dict[str, Any] = {}
        errors = []
        for read in table:
            try:
                values.update(read(self._nvml, handle))
            except self._nvml.NVMLError as error:
                if not is_unsupported(self._nvml, error):
                    errors.append(describe(error))
            except Exception:  # another version's binding or library: no fault of the card
                continue
        return values, errors


def _binding(state_dir: str) -> Any:
    import ctypes

    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise NoNvml(LIBRARY) from None
    try:
        return nvml_binding.load(state_dir)
    except ImportError:
        raise NoNvml("pynvml is not packed") from None


def describe(error: Any) -> str:
    """Return an NVML error in words."""
    return WORDS.get(getattr(error, "value", 0)) or str(error)
