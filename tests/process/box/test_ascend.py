"""The table of ``npu-smi info``. No card was ever at hand: the tables below are written after published ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rgt_box.sampling import gpu_without_nvml

from tests.process.box.harness import Agent, decode

SINGLE = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.1                   Version: 24.1.1                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B4               | OK            | 88.2        30                0    / 0             |
| 0                         | 0000:C1:00.0  | 41          0    / 0          26838/ 32768         |
+===========================+===============+====================================================+
| 1     910B4               | Alarm         | 87.0        91                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          29356/ 32768         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 4321          | python                   | 26000                   |
+===========================+===============+====================================================+
"""

DOUBLE = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 3     Ascend910           | OK            | 186.3       36                0    / 0             |
| 0     6                   | 0000:99:00.0  | 7           0    / 0          3415 / 65536         |
+------------------------------------------------------------------------------------------------+
| 3     Ascend910           | OK            | -           35                0    / 0             |
| 1     7                   | 0000:9B:00.0  | 0           0    / 0          3195 / 65536         |
"""

BOARD = """\
| 5     310P3               | OK            | NA          46                0     / 0            |
| 0     0                   | 0000:5E:00.0  | 0           1500 / 21527                           |
"""


def test_one_chip_per_card() -> None:
    first, second = gpu_without_nvml.parse_npu_smi(SINGLE)
    assert first == {
        "index": 0,
        "name": "910B4",
        "util": 41.0,
        "vram_used": 26838 << 20,
        "vram_total": 32768 << 20,
        "temp_c": 30.0,
        "power_w": 88.2,
        "bus": "0000:c1:00.0",
    }
    assert (second["index"], second["error"]) == (1, "npu-smi reports health: Alarm")


def test_two_chips_per_card_are_numbered_as_the_driver_does() -> None:
    first, second = gpu_without_nvml.parse_npu_smi(DOUBLE)
    assert (first["index"], first["power_w"], first["util"]) == (6, 186.3, 7.0)
    assert (second["index"], "power_w" in second, second["vram_used"]) == (7, False, 3195 << 20)


def test_a_card_without_hbm() -> None:
    (gpu,) = gpu_without_nvml.parse_npu_smi(BOARD)
    assert (gpu["vram_used"], gpu["vram_total"], "power_w" in gpu) == (
        1500 << 20,
        21527 << 20,
        False,
    )


@pytest.mark.parametrize(
    "text", ["", "dcmi module initialize failed", "| a | b | c |\n| 0 | x | y |\n"]
)
def test_another_table_gives_nothing(text: str) -> None:
    assert gpu_without_nvml.parse_npu_smi(text) == []


def test_it_is_chosen_where_it_is_installed(agent: Agent, tmp_path: Path) -> None:
    tool = tmp_path / "npu-smi"
    (tmp_path / "table").write_text(SINGLE)
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/table\n")
    tool.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert [gpu.util for gpu in decode(agent.run("sample", env=env).stdout).gpus] == [41.0, 0.0]
    (tmp_path / "table").write_text("dcmi module initialize failed")
    (gpu,) = decode(agent.run("sample", env=env).stdout).gpus
    assert gpu.error == "RuntimeError: npu-smi failed or printed an unknown table"
