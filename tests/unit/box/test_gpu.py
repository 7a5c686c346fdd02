from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from rgt_box.sampling import gpu_smi
from rgt_box.sampling.gpu import throttle_names
from rgt_box.sampling.gpu_nvml import NoNvml, Nvml
from rgt_box.sampling.gpu_trace import Trace, load

from tests.unit.box.harness import Agent, decode

TRACE: dict[str, Any] = {
    "gpus": [
        {
            "index": 0,
            "name": "RTX 4090",
            "vram_total": 24 << 30,
            "power_limit_w": 450,
            "clock_max_mhz": 2520,
            "busy": [[97, 100, 61, 400, 2500], [99, 101, 62, 410, 2510]],
            "idle": [[0, 1, 30, 20, 210]],
        }
    ]
}


def test_a_trace_shows_busy_rows_by_the_age_of_the_process_and_loops() -> None:
    trace = Trace(TRACE)
    proc = {"pid": 1, "started": 1000.0, "state": "R"}
    (idle,) = trace.rows(1001.0, [])
    assert (idle["util"], idle["clock_mhz"], idle["sim"]) == (0, 210, True)
    assert [trace.rows(1000.0 + s, [proc])[0]["util"] for s in range(4)] == [97, 99, 97, 99]
    assert trace.rows(1000.0, [dict(proc, state="Z")])[0]["util"] == 0
    assert trace.rows(990.0, [proc])[0]["util"] == 97


@pytest.mark.parametrize(
    "broken", [{}, {"gpus": []}, {"gpus": [{}]}, {"gpus": [{"index": 0, "busy": 1, "idle": []}]}]
)
def test_a_broken_trace_is_refused(broken: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match=r"GPU|gpus"):
        load(str(tmp_path / "trace.json"))


def test_a_trace_that_cannot_be_read_limits_but_does_not_stop_the_sample(
    agent: Agent, tmp_path: Path
) -> None:
    done = agent.run("sample", "--gpu-trace", str(tmp_path / "missing.json"))
    assert (decode(done.stdout).gpus, b"missing or no JSON" in done.stderr) == ((), True)


def test_a_sample_with_a_trace(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    (gpu,) = decode(agent.run("sample", "--gpu-trace", str(tmp_path / "trace.json")).stdout).gpus
    assert (gpu.name, gpu.vram_total, gpu.sim) == ("RTX 4090", 24 << 30, True)


SMI_ROW = "0, NVIDIA H100 80GB HBM3, 87, 40960, 81559, 61, 512.34, 700.00, 1755, 1980, 0x0000000000000024\n"


def test_nvidia_smi_is_parsed() -> None:
    (gpu,) = gpu_smi.parse(SMI_ROW)
    assert (gpu["name"], gpu["util"], gpu["vram_used"]) == ("NVIDIA H100 80GB HBM3", 87.0, 40960 << 20)
    assert throttle_names(gpu["throttle_mask"]) == ["sw_power_cap", "sw_thermal"]
    assert throttle_names(0x3) == []


def test_unknown_cells_of_nvidia_smi_are_left_out() -> None:
    text = "0, Tesla, [N/A], [Not Supported], 100, , 1, [N/A], 5, 6, [N/A]\n[GPU is lost]\n1, A, 1, 2\n"
    first, second = gpu_smi.parse(text)
    assert set(first) == {"index", "name", "vram_total", "power_w", "clock_mhz", "clock_max_mhz"}
    assert (second["index"], second["vram_used"]) == (1, 2 << 20)


def fake_smi(folder: Path, script: str) -> dict[str, str]:
    folder.mkdir()
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_nvidia_smi_is_the_fallback(agent: Agent, tmp_path: Path) -> None:
    env = fake_smi(tmp_path / "bin", f"printf '%s' '{SMI_ROW}'")
    (gpu,) = decode(agent.run("sample", env=env).stdout).gpus
    assert (gpu.util, gpu.sim, gpu.throttle) == (87.0, False, ("sw_power_cap", "sw_thermal"))


def test_a_hanging_nvidia_smi_is_killed_and_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", fake_smi(tmp_path / "bin", "exec sleep 1000")["PATH"])
    monkeypatch.setattr(gpu_smi, "TIMEOUT", 0.05)
    with pytest.raises(TimeoutError, match="did not answer"):
        gpu_smi.Smi().read()


class FakeNvml:
    """As much of the binding as the sampler uses; GPU 1 is lost, power is not supported."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_FUNCTION_NOT_FOUND = 3, 13

    class NVMLError(Exception):
        def __init__(self, value: int, text: str) -> None:
            super().__init__(text)
            self.value = value

    class Pair:
        gpu, used, total = 42, 10, 80

    def __init__(self, count: int = 2) -> None:
        self.count = count

    def nvmlInit(self) -> None:  # noqa: N802
        """Nothing to do."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index == 1:
            raise self.NVMLError(15, "GPU is lost")
        return index

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetName": b"H200",
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetUtilizationRates": self.Pair,
            "nvmlDeviceGetMemoryInfo": self.Pair,
            "nvmlDeviceGetTemperature": 55,
            "nvmlDeviceGetEnforcedPowerLimit": 700000,
            "nvmlDeviceGetClockInfo": 1700,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x8,
        }
        if name == "nvmlDeviceGetPowerUsage":
            return self._unsupported
        if name not in answers:
            raise AttributeError(name)
        return lambda *_: answers[name]

    def _unsupported(self, *_: object) -> None:
        raise self.NVMLError(3, "Not Supported")


def test_one_lost_gpu_does_not_cost_the_others() -> None:
    first, second = Nvml("", FakeNvml()).read()
    assert second == {"index": 1, "name": "GPU", "error": "GPU is lost"}
    assert first == {
        "index": 0,
        "name": "H200",
        "clock_max_mhz": 1980,
        "util": 42,
        "vram_used": 10,
        "vram_total": 80,
        "temp_c": 55,
        "power_limit_w": 700.0,
        "clock_mhz": 1700,
        "throttle_mask": 8,
    }


def test_no_device_is_no_nvml() -> None:
    with pytest.raises(NoNvml):
        Nvml("", FakeNvml(0))
