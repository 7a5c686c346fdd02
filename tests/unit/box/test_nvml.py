"""NVML for real: the packed binding, ctypes, and a shared library that pretends to be the driver's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rgt_tui.model import protocol
from tests.unit.box.harness import Agent, decode
from tests.unit.box.test_bundle import interpreters


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("nvml_stub.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)], check=True
    )
    return folder


def sample(agent: Agent, driver: Path, **env: str) -> tuple[protocol.Sample, bytes]:
    done = agent.run("sample", env={"LD_LIBRARY_PATH": str(driver), **env})
    frame = decode(done.stdout)
    assert isinstance(frame, protocol.Sample)
    return frame, done.stderr


def test_a_gpu_and_a_lost_one(agent: Agent, driver: Path) -> None:
    agent.state.mkdir()
    for _ in range(2):  # the second time from the compiled copy
        (first, second) = sample(agent, driver)[0].gpus
        assert first == protocol.Gpu(
            index=0,
            name="NVIDIA Stub 80GB",
            util=93,
            vram_used=60 << 30,
            vram_total=80 << 30,
            temp_c=66,
            power_w=512.345,
            clock_mhz=1755,
            clock_max_mhz=1980,
            throttle=("sw_power_cap", "hw_thermal"),
        )
        assert (second.index, second.util, second.error) == (1, None, "GPU is lost")
        assert len(list(agent.state.glob("pynvml-*.pyc"))) == 1


def test_a_driver_mismatch_is_told_and_costs_nothing_else(agent: Agent, driver: Path) -> None:
    frame, complaint = sample(agent, driver, STUB_INIT="18")
    assert frame.gpus == ()
    assert frame.mem.host_total
    assert b"version mismatch" in complaint


def test_a_state_directory_that_cannot_be_written_still_gives_readings(agent: Agent, driver: Path) -> None:
    assert sample(agent, driver, RGT_STATE_DIR="/proc/nowhere")[0].gpus[0].util == 93


@pytest.mark.parametrize("python", interpreters())
def test_the_recorder_reads_it_under_every_python(
    agent_file: Path, tmp_path: Path, driver: Path, python: str
) -> None:
    agent = Agent(agent_file, tmp_path / "state", python)
    agent.env["LD_LIBRARY_PATH"] = str(driver)
    try:
        channel = agent.watch(interval=0.05)
        hello = channel.expect(lambda frame: isinstance(frame, protocol.Hello))
        assert hello.gpu_source == "nvml"
        event = channel.expect(lambda frame: isinstance(frame, protocol.Event) and frame.kind == "gpu-error")
        assert event.text == "GPU 1: GPU is lost"
        assert channel.expect(lambda frame: isinstance(frame, protocol.Sample)).gpus[0].util == 93
        channel.close()
    finally:
        agent.stop()
