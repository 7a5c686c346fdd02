from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rgt_box.commands import gpu_health

from tests.process.box.harness import Agent, pythons
from tests.process.box.nvml_driver import build_driver


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


def health(agent: Agent, *words: str, **env: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Return exit status, report, and the verdicts of GPU 0 by check."""
    done = agent.run("gpu-health", *words, env=env)
    report = json.loads(done.stdout)
    checks = {row["check"]: row["ok"] for row in report["checks"] if row["gpu"] in (0, None)}
    assert report["status"] == done.returncode
    return done.returncode, report, checks


def test_every_check_of_a_card_in_trouble(agent: Agent, driver: Path, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(
        "4,1,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n"
        "4,2,6000000,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=7, Graphics Exception\n"
        "4,3,7000000,-;NVRM: Xid (PCI:0000:3c:00): 45, pid=7, Preemptive Channel Removal\n"
    )
    env = {
        "LD_LIBRARY_PATH": str(driver),
        "RGT_KMSG": str(log),
        "STUB_ECC": "2",
        "STUB_WIDTH": "8",
        "STUB_COUNT": "1",
    }
    code, report, checks = health(agent, "--expect", "2", "--hot", "60", **env)
    assert (code, report["source"]) == (1, "nvml")
    assert checks == {
        "visible": True,
        "xid": False,
        "ecc": False,
        "throttle": False,  # by heat, in hardware
        "pcie": False,
        "temperature": False,
        "memory": checks["memory"],  # by namespace: false on a host, null in a container
        "count": False,
    }
    assert checks["memory"] is not True
    texts = {row["check"]: row["text"] for row in report["checks"]}
    assert texts["pcie"] == "x8 of x16, generation 4 of 5"
    assert "Xid 79" in texts["xid"]


def test_a_lost_gpu_is_trouble(agent: Agent, driver: Path) -> None:
    code, report, _ = health(agent, LD_LIBRARY_PATH=str(driver), RGT_KMSG="/dev/null")
    rows = {row["check"]: row for row in report["checks"] if row["gpu"] == 1}
    assert (code, rows["visible"]["ok"], rows["visible"]["text"]) == (1, False, "GPU is lost")
    assert set(rows) == {"visible", "xid"}  # nothing is said of what cannot be read


def test_without_a_gpu_it_could_not_tell(agent: Agent) -> None:
    code, report, _ = health(agent)
    assert (code, report["source"], report["error"]) == (2, "none", "no GPU is visible")
    assert health(agent, "--expect", "1")[0] == 1


GOOD: dict[str, Any] = {
    "index": 0, "name": "A", "ecc_uncorrected": 0, "throttle_mask": 0x14, "pcie_gen": 1, "pcie_gen_max": 4,
    "pcie_width": 16, "pcie_width_max": 16, "temp_c": 40, "vram_used": 1 << 29,
}  # fmt: skip


def test_an_idle_card_is_well() -> None:
    rows = gpu_health.check_gpu(GOOD, 85.0, None)
    assert {row["check"] for row in rows if row["ok"] is not True} == {"xid"}
    assert gpu_health.exit_status(rows, None, strict=False) == 0
    assert gpu_health.exit_status(rows, None, strict=True) == 2
    assert gpu_health.exit_status(rows, "hangs", strict=False) == 2


def test_a_card_that_tells_nothing_is_neither_well_nor_ill() -> None:
    rows = gpu_health.check_gpu({"index": 0, "name": "A"}, 85.0, None)
    assert {row["check"]: row["ok"] for row in rows if row["check"] != "visible"} == dict.fromkeys(
        ("xid", "ecc", "throttle", "pcie", "memory", "temperature")
    )


@pytest.mark.parametrize(("comparable", "ok"), [(True, False), (False, None), (None, None)])
def test_memory_of_nobody_is_trouble_only_where_everybody_is_listed(
    comparable: bool | None, ok: bool | None
) -> None:
    gpu = GOOD | {
        "vram_used": 9 << 30,
        "procs": [{"pid": 1, "bytes": 2 << 30}],
        "comparable": comparable,
    }
    (row,) = [row for row in gpu_health.check_gpu(gpu, 85.0, None) if row["check"] == "memory"]
    assert (row["ok"], row["text"].startswith("7.0 GiB are used by no process")) == (ok, True)


@pytest.mark.parametrize("python", pythons(between=pytest.mark.full))
def test_the_verbs_run_under_every_python(
    agent_file: Path, tmp_path: Path, driver: Path, python: str
) -> None:
    env = {"LD_LIBRARY_PATH": str(driver), "STUB_COUNT": "1", "RGT_KMSG": "/dev/null"}
    agent = Agent(agent_file, tmp_path / "state", python)
    code, report, checks = health(agent, **env)
    assert (code, report["source"], checks["visible"], checks["xid"]) == (1, "nvml", True, True)
    done = agent.run("reap", env=env | {"RGT_NVIDIA_DEVICES": str(tmp_path / "none")})
    assert json.loads(done.stdout)["holders"] == []
    for verb in ("reap", "gpu-health"):
        assert agent.run(verb, "--help").stdout.startswith(f"usage: {verb}".encode())
