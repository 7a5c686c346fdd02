"""A recorded GPU trace, replayed where there is no GPU. Every reading of it says that it is simulated."""

from __future__ import annotations

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROW = ("util", "vram_used", "temp_c", "power_w", "clock_mhz")


class Trace:
    """Rows of one second each: ``busy`` ones while a training process lives, else ``idle`` ones; both loop.

    Raises:
        ValueError: when the trace does not have the documented form.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        gpus = data.get("gpus")
        if not isinstance(gpus, list) or not gpus:
            raise ValueError('no "gpus" list')
        self._gpus = [self._checked(gpu) for gpu in gpus]

    @staticmethod
    def _checked(gpu: Any) -> dict[str, Any]:
        if not isinstance(gpu, dict) or not isinstance(gpu.get("index"), int):
            raise ValueError("a GPU without an index")
        for phase in ("busy", "idle"):
            rows = gpu.get(phase)
            if not isinstance(rows, list) or any(
                not isinstance(row, list) or len(row) > len(ROW) for row in rows
            ):
                raise ValueError('GPU %d: "%s" is no list of rows' % (gpu["index"], phase))
        return gpu

    def rows(self, at: float, procs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the ``gpus`` of a sample taken `at` (epoch seconds) beside `procs`."""
        live = [proc for proc in procs if proc.get("state") not in ("Z", "X")]
        start = min((float(proc["started"]) for proc in live), default=0.0)
        second = max(0, int(at - start))
        return [self._gpu(gpu, gpu["busy"] if live else gpu["idle"], second) for gpu in self._gpus]

    @staticmethod
    def _gpu(gpu: dict[str, Any], rows: list[list[Any]], second: int) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "index": gpu["index"],
            "name": str(gpu.get("name", "GPU")),
            "vram_total": gpu.get("vram_total"),
            "power_limit_w": gpu.get("power_limit_w"),
            "clock_max_mhz": gpu.get("clock_max_mhz"),
            "sim": True,
        }
        if rows:
            shown.update(zip(ROW, rows[second % len(rows)]))  # noqa: B905 (strict= needs Python 3.10)
        return {key: value for key, value in shown.items() if value is not None}


def load(path: str) -> Trace:
    """Read a trace file.

    Raises:
        ValueError: when it is missing, no JSON, or not of the documented form.
    """
    data = files.read_json(path)
    if data is None:
        raise ValueError("%s is missing or no JSON object" % path)
    return Trace(data)
