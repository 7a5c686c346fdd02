from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rgt_box import background
from rgt_box.sampling import gpu_nvml, gpu_without_nvml
from rgt_box.sampling.gpu import GpuSampler, GpuTrace, load_trace, throttle_names
from rgt_box.sampling.gpu_nvml import NvmlMissing, NvmlSession
from rgt_box.sampling.sampler import BoxSampler

from rgt_tui.model import protocol
from tests.process.box.harness import PATIENCE, Agent, decode, until

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
    trace = GpuTrace(TRACE)
    proc = {"pid": 1, "started": 1000.0, "state": "R"}
    (idle,) = trace.gpu_rows(1001.0, [])
    assert (idle["util"], idle["clock_mhz"], idle["sim"]) == (0, 210, True)
    assert [trace.gpu_rows(1000.0 + s, [proc])[0]["util"] for s in range(4)] == [97, 99, 97, 99]
    assert trace.gpu_rows(1000.0, [dict(proc, state="Z")])[0]["util"] == 0
    assert trace.gpu_rows(990.0, [proc])[0]["util"] == 97


@pytest.mark.parametrize(
    "broken", [{}, {"gpus": []}, {"gpus": [{}]}, {"gpus": [{"index": 0, "busy": 1, "idle": []}]}]
)
def test_a_broken_trace_is_refused(broken: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match=r"GPU|gpus"):
        load_trace(str(tmp_path / "trace.json"))


def test_a_trace_that_cannot_be_read_limits_but_does_not_stop_the_sample(
    agent: Agent, tmp_path: Path
) -> None:
    done = agent.run("sample", "--gpu-trace", str(tmp_path / "missing.json"))
    assert (decode(done.stdout).gpus, b"missing or is not a JSON" in done.stderr) == ((), True)


def test_a_sample_with_a_trace(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    (gpu,) = decode(agent.run("sample", "--gpu-trace", str(tmp_path / "trace.json")).stdout).gpus
    assert (gpu.name, gpu.vram_total, gpu.sim) == ("RTX 4090", 24 << 30, True)


SMI_ROW = "0, NVIDIA H100 80GB HBM3, 87, 40960, 81559, 61, 512.34, 700.00, 1755, 1980, 0x0000000000000024\n"


def test_nvidia_smi_is_parsed() -> None:
    (gpu,) = gpu_without_nvml.parse_smi(SMI_ROW)
    assert (gpu["name"], gpu["util"], gpu["vram_used"]) == (
        "NVIDIA H100 80GB HBM3",
        87.0,
        40960 << 20,
    )
    assert throttle_names(gpu["throttle_mask"]) == ["sw_power_cap", "sw_thermal"]
    assert throttle_names(0x3) == []


def test_unknown_cells_of_nvidia_smi_are_left_out() -> None:
    text = "0, Tesla, [N/A], [Not Supported], 100, , 1, [N/A], 5, 6, [N/A]\n[GPU is lost]\n1, A, 1, 2\n"
    first, second = gpu_without_nvml.parse_smi(text)
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


def test_a_hanging_nvidia_smi_is_killed_and_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", fake_smi(tmp_path / "bin", "exec sleep 1000")["PATH"])
    monkeypatch.setattr(gpu_without_nvml, "SMI_TIMEOUT", 0.05)
    with pytest.raises(TimeoutError, match="did not answer"):
        gpu_without_nvml.NvidiaSmi().read()


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
            "nvmlDeviceGetUUID": b"GPU-0",
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
    first, second = NvmlSession("", FakeNvml()).read()
    assert second == {"index": 1, "name": "GPU", "error": "GPU is lost"}
    assert first == {
        "index": 0,
        "name": "H200",
        "uuid": "GPU-0",
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
    with pytest.raises(NvmlMissing):
        NvmlSession("", FakeNvml(0))


FULL_ROW = SMI_ROW.strip() + ", 00000000:3B:00.0, 1, 5, 8, 16, 12, [N/A], GPU-c0ffee\n"
ASKED = "--query-compute-apps"


def test_nvidia_smi_tells_link_memory_errors_and_users(agent: Agent, tmp_path: Path) -> None:
    script = f"""case "$1" in
        {ASKED}*) echo '00000000:3B:00.0, 4194303, 1024'; echo '00000000:5E:00.0, 7, [N/A]';;
        *clocks_throttle_reasons*) echo 'Field "clocks_throttle_reasons.active" is not a valid field'; exit 6;;
        *) printf '%s' '{FULL_ROW}';;
    esac"""
    (gpu,) = decode(agent.run("sample", env=fake_smi(tmp_path / "bin", script)).stdout).gpus
    assert (gpu.bus, gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max) == (
        "0000:3b:00.0", 1, 5, 8, 16,
    )  # fmt: skip
    assert (gpu.ecc_corrected, gpu.ecc_uncorrected, gpu.throttle) == (
        12,
        None,
        ("sw_power_cap", "sw_thermal"),
    )
    assert gpu.procs == (protocol.GpuProcess(pid=4194303, bytes=1024 << 20),)
    assert gpu.uuid == "GPU-c0ffee"
    (old,) = gpu_without_nvml.parse_smi(FULL_ROW.replace("GPU-c0ffee", "[N/A]"))
    assert "uuid" not in old


def test_users_are_listed_by_card() -> None:
    found = gpu_without_nvml.parse_users(
        "00000000:3B:00.0, 12, 1\n00000000:3B:00.0, 13, [N/A]\nNo devices\n, , \n"
    )
    assert found == {"0000:3b:00.0": [{"pid": 12, "bytes": 1 << 20}, {"pid": 13, "bytes": None}]}


def test_a_reading_that_is_shown_twice_keeps_its_throttling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", fake_smi(tmp_path / "bin", f"printf '%s' '{SMI_ROW}'")["PATH"])
    sampler = GpuSampler(None, str(tmp_path))
    first = sampler.read(0.0, [], wait=PATIENCE)
    assert first == sampler.read(0.0, [])
    assert first[0]["throttle"] == ["sw_power_cap", "sw_thermal"]


def test_a_gpu_that_vanishes_from_the_list_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    rows.write_text("0, A, 5\n1, B, 6\n")
    monkeypatch.setenv("PATH", fake_smi(tmp_path / "bin", f"cat {rows}")["PATH"])
    monkeypatch.setattr(gpu_without_nvml, "SMI_USERS_EVERY_S", 0.0)
    sampler = GpuSampler(None, str(tmp_path))
    assert [gpu["name"] for gpu in sampler.read(0.0, [], wait=PATIENCE)] == ["A", "B"]
    rows.write_text("0, A, 7\n")
    sampler._job = background.Background(gpu_without_nvml.NvidiaSmi().read, 0.0, 15.0)
    found = sampler.read(0.0, [], wait=PATIENCE)
    assert found[1] == {"index": 1, "name": "B", "error": "no longer listed by the driver"}


def test_a_hanging_nvidia_smi_stalls_no_sample(agent: Agent, tmp_path: Path) -> None:
    """Samples go on by the twentieth of a second, and the hang is told when its time is over."""
    agent.env |= fake_smi(tmp_path / "bin", f"echo $$ >> {tmp_path}/started; exec sleep 1000")
    channel = agent.watch(interval=0.05)
    first = channel.expect(lambda frame: isinstance(frame, protocol.Sample))
    event = channel.expect(
        lambda frame: isinstance(frame, protocol.BoxEvent) and frame.kind == "gpu-error"
    )
    assert event.text.endswith("nvidia-smi did not answer within 8 s")
    assert event.seq - first.seq > 3  # one that had waited for it would be the only one meanwhile
    channel.close()
    pid = int((tmp_path / "started").read_text().split()[0])
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of nvidia-smi")


def test_an_xid_waits_until_the_driver_has_named_its_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a busy box, and where a program is asked, the first answer takes longer than the first look."""
    log, answers = tmp_path / "kmsg", threading.Event()
    log.write_text(
        "4,1,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n"
    )
    monkeypatch.setenv("RGT_KMSG", str(log))
    gpus = [{"index": 3, "name": "A", "bus": "0000:3b:00.0"}]
    monkeypatch.setattr(
        gpu_nvml, "NvmlSession", lambda _: SimpleNamespace(read=lambda: answers.wait() and gpus)
    )
    sampler = BoxSampler(str(tmp_path), remember=False)
    sampler.configure({}, [])
    assert sampler._gpu is not None
    sampler._gpu._job = background.Background(gpu_nvml.NvmlSession("").read, 0.0, 1e9)
    assert "xid" not in {event["kind"] for event in sampler.read()[1]}
    answers.set()
    (event,) = until(
        lambda: [one for one in sampler.read()[1] if one["kind"] == "xid"], "the event"
    )
    assert event["text"].startswith("GPU 3 (0000:3b:00.0): Xid 79")


class Broken(FakeNvml):
    """A driver that is mended after a while."""

    problem: int | None = 18

    def nvmlInit(self) -> None:  # noqa: N802
        if self.problem is not None:
            raise self.NVMLError(self.problem, "RM has detected an NVML/RM version mismatch.")


def test_a_broken_driver_is_an_error_per_card_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor, bus in enumerate(("0000:3b:00.0", "0000:5e:00.0")):
        (tmp_path / bus).mkdir()
        text = f"Model: \t\t NVIDIA H100\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n"
        (tmp_path / bus / "information").write_text(text)
    binding = Broken(1)
    nvml = NvmlSession("", binding, str(tmp_path))
    first, second = nvml.read()
    assert (first["index"], first["name"], first["bus"]) == (0, "NVIDIA H100", "0000:3b:00.0")
    assert second["error"].startswith("driver/library version mismatch")
    binding.problem = None
    assert nvml.read()[0]["error"] == first["error"]  # it is not asked all the time
    monkeypatch.setattr(gpu_nvml, "RETRY", 0.0)
    (mended,) = nvml.read()
    assert (mended["util"], "error" in mended) == (42, False)


def test_a_driver_that_is_not_loaded_is_no_nvml_unless_the_kernel_knows_cards(
    tmp_path: Path,
) -> None:
    binding = Broken()
    binding.problem = 9
    with pytest.raises(FakeNvml.NVMLError):
        NvmlSession("", binding, str(tmp_path))
    (tmp_path / "0000:3b:00.0").mkdir()
    assert len(NvmlSession("", binding, str(tmp_path)).read()) == 1
