"""NVML for real: the packed binding, ctypes, and a shared library that pretends to be the driver's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, decode, pythons
from tests.process.box.nvml_driver import Hold, build_driver, holding, make_devices


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


def sample(agent: Agent, driver: Path, **env: str) -> tuple[protocol.Sample, bytes]:
    done = agent.run("sample", env={"LD_LIBRARY_PATH": str(driver), **env})
    frame = decode(done.stdout)
    assert isinstance(frame, protocol.Sample)
    return frame, done.stderr


def test_a_gpu_and_a_lost_one(agent: Agent, driver: Path) -> None:
    agent.state.mkdir()
    for _ in range(2):  # the second time from the compiled copy
        (first, second) = sample(agent, driver)[0].gpus
        assert first == protocol.GpuReading(
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
            bus="0000:3b:00.0",
            ecc_corrected=3,
            ecc_uncorrected=0,
            pcie_gen=4,
            pcie_gen_max=5,
            pcie_width=16,
            pcie_width_max=16,
            uuid="GPU-5afe0000-0000-4000-8000-000000000000",
            temp_slow_c=90,
        )
        assert (second.index, second.util, second.error) == (1, None, "GPU is lost")
        assert len(list(agent.state.glob("pynvml-*.pyc"))) == 1


def test_links_and_what_a_card_is_cut_into(agent: Agent, driver: Path) -> None:
    (gpu,) = sample(agent, driver, STUB_COUNT="1", STUB_LINKS="18", STUB_UP="17", STUB_MIG="0")[
        0
    ].gpus
    assert (gpu.nvlinks, gpu.nvlinks_up, gpu.mig, gpu.error) == (18, 17, None, None)
    (gpu,) = sample(agent, driver, STUB_COUNT="1", STUB_MIG="2")[0].gpus
    assert gpu.mig == tuple(
        protocol.MigSlice(
            name="1g.10gb",
            vram_used=3 << 30,
            vram_total=10 << 30,
            uuid=f"MIG-5afe0000-0000-4000-8000-{place:012x}",
        )
        for place in (100, 102)
    )
    assert (gpu.nvlinks, gpu.nvlinks_up) == (None, None), (
        "a card without links has not 0 of them up"
    )
    (gpu,) = sample(agent, driver, STUB_COUNT="1", STUB_MIG="-1")[0].gpus
    assert gpu.mig == (), "a card that is to be cut, and of which no part was made, is not whole"


def test_a_container_that_forbids_to_ask_for_links_and_parts_has_healthy_cards(
    agent: Agent, driver: Path
) -> None:
    (gpu,) = sample(agent, driver, STUB_COUNT="1", STUB_FORBID="1", STUB_LINKS="18", STUB_MIG="2")[
        0
    ].gpus
    assert (gpu.error, gpu.util, gpu.nvlinks, gpu.mig) == (None, 93, None, None)


def test_a_driver_mismatch_is_told_and_costs_nothing_else(agent: Agent, driver: Path) -> None:
    frame, _ = sample(agent, driver, STUB_INIT="18")
    (gpu,) = frame.gpus
    assert (gpu.index, gpu.util) == (0, None)
    assert str(gpu.error).startswith("driver/library version mismatch: the driver was updated")
    assert frame.mem.host_total


def test_a_library_without_a_driver_is_no_gpu(agent: Agent, driver: Path) -> None:
    frame, complaint = sample(agent, driver, STUB_INIT="9")
    assert frame.gpus == ()
    assert b"NVML" in complaint


def test_a_state_directory_that_cannot_be_written_still_gives_readings(
    agent: Agent, driver: Path
) -> None:
    assert sample(agent, driver, RGT_STATE_DIR="/proc/nowhere")[0].gpus[0].util == 93


@pytest.fixture
def devices(tmp_path: Path) -> str:
    return make_devices(tmp_path)


@pytest.fixture
def hold() -> Iterator[Hold]:
    with holding() as hold:
        yield hold


@pytest.mark.parametrize("extra", [{}, {"STUB_OLD": "1"}])
def test_per_process_memory(
    agent: Agent, driver: Path, devices: str, hold: Hold, extra: dict[str, str]
) -> None:
    mine = hold(devices + "0").pid
    env = {"RGT_NVIDIA_DEVICES": devices, "STUB_USERS": f"{mine}:{60 << 30}"} | extra
    (gpu, _) = sample(agent, driver, **env)[0].gpus
    assert gpu.procs == (protocol.GpuProcess(pid=mine, bytes=60 << 30, mapped=True),)
    assert gpu.orphans == ()
    (gpu, _) = sample(agent, driver, **env | {"STUB_USERS": f"{mine}:0"})[0].gpus
    assert gpu.procs == (protocol.GpuProcess(pid=mine, bytes=None, mapped=True),)


def test_a_holder_that_the_driver_does_not_list_is_an_orphan(
    agent: Agent, driver: Path, devices: str, hold: Hold
) -> None:
    mine, orphan, control = (hold(devices + name).pid for name in ("0", "0", "ctl"))
    env = {"RGT_NVIDIA_DEVICES": devices, "STUB_USERS": f"{mine}:{10 << 30}", "STUB_COUNT": "1"}
    (gpu,) = sample(agent, driver, **env)[0].gpus
    assert [holder.pid for holder in gpu.orphans] == [orphan]
    assert "held = open" in gpu.orphans[0].cmd
    assert control not in {holder.pid for holder in gpu.orphans}
    # Nobody is looked for while all memory has an owner.
    (gpu,) = sample(agent, driver, **env | {"STUB_USERS": f"{mine}:{60 << 30}"})[0].gpus
    assert gpu.orphans == ()
    # The users of a lost card cannot be read: the orphan may be one of them.
    (gpu, lost) = sample(agent, driver, **env | {"STUB_COUNT": "2"})[0].gpus
    assert (gpu.orphans, lost.error) == ((), "GPU is lost")


def test_pids_of_another_namespace_are_shown_unmapped_and_make_no_orphans(
    agent: Agent, driver: Path, devices: str, hold: Hold
) -> None:
    """In a pid namespace of its own the agent sees neither number; it must not mistake its own pid 1 for one."""
    outside = hold(devices + "0").pid
    env = agent.env | {
        "LD_LIBRARY_PATH": str(driver),
        "RGT_NVIDIA_DEVICES": devices,
        "STUB_USERS": f"{outside}:{10 << 30},1:{1 << 30}",
    }
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = ["unshare", *user, "--pid", "--fork", "--mount-proc", *agent.command("sample")]
    done = subprocess.run(words, env=env, capture_output=True, check=True, timeout=60)
    gpu = decode(done.stdout).gpus[0]
    assert [(proc.pid, proc.mapped) for proc in gpu.procs] == [(1, False), (outside, False)]
    assert gpu.orphans == ()
    assert b"with the PIDs of another namespace" in done.stderr
    env.pop("STUB_USERS")
    done = subprocess.run(words, env=env, capture_output=True, check=True, timeout=60)
    assert b"does not list them" in done.stderr


def events(channel: object, kind: str) -> protocol.BoxEvent:
    found = channel.expect(  # type: ignore[attr-defined]
        lambda frame: isinstance(frame, protocol.BoxEvent) and frame.kind == kind,
        f"an event {kind}",
    )
    assert isinstance(found, protocol.BoxEvent)
    return found


def test_a_gpu_that_is_lost_while_it_is_watched_keeps_its_name(
    agent: Agent, driver: Path, tmp_path: Path
) -> None:
    lost = tmp_path / "lost"
    agent.env |= {"LD_LIBRARY_PATH": str(driver), "STUB_LOST": str(lost)}
    channel = agent.watch(interval=0.05)
    healthy = channel.expect(
        lambda frame: isinstance(frame, protocol.Sample) and len(frame.gpus) == 2
    )
    assert [gpu.error for gpu in healthy.gpus] == [None, None]
    lost.touch()
    assert events(channel, "gpu-error").text == "GPU 1: GPU is lost"
    after = channel.expect(lambda frame: isinstance(frame, protocol.Sample))
    assert (after.gpus[1].name, after.gpus[1].bus) == ("NVIDIA Stub 80GB", "0000:3c:00.0")
    assert after.gpus[1].uuid == "GPU-5afe0000-0000-4000-8000-000000000001"
    assert after.gpus[0].util == 93
    lost.unlink()
    channel.expect(lambda frame: isinstance(frame, protocol.Sample) and not frame.gpus[1].error)
    channel.close()


def test_a_driver_that_hangs_stalls_no_sample(agent: Agent, driver: Path, tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    agent.env |= {"LD_LIBRARY_PATH": str(driver), "STUB_HANG": str(hang), "STUB_COUNT": "1"}
    channel = agent.watch(interval=0.05)
    channel.expect(lambda frame: isinstance(frame, protocol.Sample) and frame.gpus)
    hang.touch()
    try:
        event = events(channel, "gpu-error")
        assert event.text.startswith("GPU 0: no answer for ")
        sample = channel.expect(lambda frame: isinstance(frame, protocol.Sample))
        assert (sample.gpus[0].name, sample.gpus[0].util) == ("NVIDIA Stub 80GB", None)
    finally:
        hang.unlink()
    channel.expect(lambda frame: isinstance(frame, protocol.Sample) and frame.gpus[0].util == 93)
    channel.close()


XID = "4,{seq},{at},-;NVRM: Xid (PCI:0000:3b:00): {number}, pid=1234, name=python, {words}\n"


def test_an_xid_comes_once_also_across_two_recorders(
    agent: Agent, driver: Path, tmp_path: Path
) -> None:
    log = tmp_path / "kmsg"
    with open("/proc/uptime") as file:
        now = int(float(file.read().split()[0]) * 1e6)
    old = XID.format(seq=7, at=now // 2, number=31, words="MMU Fault")
    log.write_text("6,5,100,-;Linux version\n SUBSYSTEM=x\n" + old)
    agent.env |= {"LD_LIBRARY_PATH": str(driver), "RGT_KMSG": str(log), "STUB_COUNT": "1"}
    channel = agent.watch(interval=0.05)
    hello = channel.expect(lambda frame: isinstance(frame, protocol.Hello))
    assert not [text for text in hello.limited if "Xid" in text]
    first = events(channel, "xid")
    assert first.level == "warn"
    assert first.text.startswith("GPU 0 (0000:3b:00.0): Xid 31, memory page fault")
    assert first.text.endswith(" ago") or now < 200e6
    with log.open("a") as file:
        file.write(XID.format(seq=8, at=now, number=79, words="GPU has fallen off the bus."))
    second = events(channel, "xid")
    assert second.level == "error"
    assert "Xid 79, the GPU has fallen off the bus" in second.text
    shown = channel.expect(lambda frame: isinstance(frame, protocol.Sample))
    assert shown.gpus[0].xid == 79
    channel.close()
    agent.stop()
    agent.run("sample")  # a single look moves nothing
    channel = agent.watch(interval=0.05, samples_after={"boot": shown.boot, "seq": shown.seq})
    channel.expect(
        lambda frame: isinstance(frame, protocol.BoxEvent) and frame.kind == "agent-started"
    )
    kinds: list[str] = []

    def is_settled(frame: object) -> bool:
        kinds.append(getattr(frame, "kind", ""))
        gpus = (
            frame.gpus if isinstance(frame, protocol.Sample) else ()
        )  # none before the driver's first answer
        return len(kinds) > 5 and bool(gpus) and gpus[0].xid == 79

    channel.expect(is_settled, "the last Xid of the card")
    assert "xid" not in kinds
    channel.close()


def test_a_kernel_log_that_cannot_be_read_is_told(
    agent: Agent, driver: Path, tmp_path: Path
) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "dmesg").write_text("#!/bin/sh\nexit 1\n")
    (fake / "dmesg").chmod(0o755)
    env = {"RGT_KMSG": "/no/kmsg", "PATH": f"{fake}:{os.environ['PATH']}"}
    _, complaint = sample(agent, driver, **env)
    assert b"Xid: the kernel log is unreadable (No such file or directory)" in complaint
    (fake / "dmesg").write_text(
        "#!/bin/sh\necho '[   12.345678] NVRM: Xid (PCI:0000:3b:00): 48, DBE'\n"
    )
    frame, complaint = sample(agent, driver, **env)
    assert b"Xid" not in complaint
    assert frame.gpus[0].xid == 48


@pytest.mark.parametrize("python", pythons(between=pytest.mark.full))
def test_the_recorder_reads_it_under_every_python(
    agent_file: Path, tmp_path: Path, driver: Path, python: str
) -> None:
    agent = Agent(agent_file, tmp_path / "state", python)
    agent.env["LD_LIBRARY_PATH"] = str(driver)
    try:
        channel = agent.watch(interval=0.05)
        hello = channel.expect(lambda frame: isinstance(frame, protocol.Hello))
        assert hello.gpu_source == "nvml"
        assert events(channel, "gpu-error").text == "GPU 1: GPU is lost"
        assert channel.expect(lambda frame: isinstance(frame, protocol.Sample)).gpus[0].util == 93
        channel.close()
        assert json.loads((agent.state / "recorder.json").read_bytes())["gpu_source"] == "nvml"
    finally:
        agent.stop()
