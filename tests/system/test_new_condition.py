"""Follows the recipes *a condition* and *a finding* of CONTRIBUTING.md in a copy: three files, all views."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

READERS = '''
from rgt_tui.health.condition import AlertRung, verdict_of_level, level_of_value

HOT = (AlertRung("warn", 83.0, 80.0), AlertRung("error", 90.0, 87.0))


def read_hot(view: BoxFacts) -> Sequence[Reading] | None:
    return [Reading(str(gpu.index), gpu.temp_c, gpu) for gpu in _list_gpus(view)]


def say_hot(view: Facts, reading: Reading, since: float) -> str:
    return f"{_gpu_name(reading.about)} is at {reading.value:.0f} °C"


def check_hot(view: BoxFacts) -> Verdict:
    """No card is hot."""
    found = [gpu.temp_c for gpu in _list_gpus(view) if gpu.temp_c is not None]
    if not found:
        return waiting_verdict("no card tells")
    return verdict_of_level(f"{max(found):.0f} °C", level_of_value(HOT, max(found)))


def prove_hot(view: BoxFacts) -> Iterator[EntryProof]:
    for gpu in _list_gpus(view):
        if (gpu.temp_c or 0.0) >= HOT[-1].at:
            yield EntryProof(f"GPU {gpu.index} is at {gpu.temp_c:.0f} °C", resource=f"GPU {gpu.index}")
'''
ROW = """    Condition(
        "gpu-hot", "A GPU is hot", "hot", gpu.read_hot, gpu.say_hot, gpu.HOT, unit="°C", hold_s=0.0,
        advice="See whether its fans turn; a host that stays hot is worth leaving.",
        findings=("HOT1",),
        covered=gpu.card_of,
        checks=(LifecycleCheck("4.9", "no card above 83 °C", gpu.check_hot),),
    ),
"""
PAGE = """
[[pages]]
id = "HOT1"
title = "The card is too hot"
severity = "degrading"
action = "re-rent"
symptom = "It is slower than it was."
cause = "Its fans, or the host."
fixes = [{ text = "See which", command = "nvidia-smi -q -d TEMPERATURE" }]
never = "Do not raise its limit."
resource = "the GPU"
patterns = ['GPU \\d+ reached its thermal limit']
needles = ["thermal limit"]
sources = ["https://docs.nvidia.com (2026-11)"]
"""
LIVE = """    "HOT1": LiveReadings(prove=gpu.prove_hot),
"""
FOLLOWED = """
import msgspec
from rgt_tui.health import AlertState, alert_advice, alert_rows, assess_box
from rgt_tui.health import diagnose_box, evaluate_checks, parse_alerts, step_alerts
from rgt_tui.model.protocol import GpuReading
from rgt_tui.profiles import load_profile
from tests.unit.triage.builders import NOW, box, cell, log, queue, sample

def at(celsius, **over):
    return box(sample=sample(gpus=(GpuReading(index=0, name="H100", temp_c=celsius),)), **over)

def hot(state):
    return [(a.level, a.text) for a in assess_box(state, NOW).alerts if a.kind == "gpu-hot"]

def check(state):
    (found,) = [r for r in evaluate_checks(state, load_profile("vastai"), NOW) if r.id == "4.9"]
    return found.status.value

assert hot(at(82.0)) == [] and check(at(82.0)) == "passed"
assert hot(at(84.0)) == [("warn", "GPU 0 is at 84 °C")] and check(at(84.0)) == "warn"
(finding,) = diagnose_box(at(91.0), NOW, ())
assert (finding.gotcha, finding.resource) == ("HOT1", "GPU 0") and check(at(91.0)) == "failed"
told = msgspec.structs.replace(at(91.0), findings=(finding,))
assert hot(told) == [], "the finding stands for it"
failed = at(50.0, queues=(queue(cell(state="failed", exit_code=1)),), logs=(log("GPU 0 reached its thermal limit"),))
assert [f.gotcha for f in diagnose_box(failed, NOW, ())] == ["HOT1"]
kinds = alert_rows(parse_alerts({"gpu-hot": {"warn": 70}}, [{"kind": "bell", "kinds": ["gpu-hot"]}]))
raised = step_alerts(AlertState(), at(75.0), NOW, kinds).raised
assert [(a.id, a.level) for a in raised] == [("gpu-hot:0", "warn")] and alert_advice(raised[0])
print("followed")
"""


def put(path: Path, text: str, *, before: str = "") -> None:
    old = path.read_text(encoding="utf-8")
    assert not before or old.count(before) == 1, (path, before)
    path.write_text(old.replace(before, text + before) if before else old + text, encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    unwanted = shutil.ignore_patterns("__pycache__", "_data")
    shutil.copytree(ROOT / "rgt_tui", tmp_path / "rgt_tui", ignore=unwanted)
    for data in ("profiles", "handbook"):
        shutil.copytree(ROOT / data, tmp_path / data)
    return tmp_path / "rgt_tui" / "health"


def test_a_row_and_its_readers_are_an_alert_a_finding_and_a_check(copy: Path) -> None:
    put(copy / "rows/conditions_gpu.py", READERS)
    put(copy / "conditions.py", ROW, before="    # Only in the checklist.\n")
    put(copy.parents[1] / "handbook" / "speed.toml", PAGE)
    put(copy / "handbook.py", LIVE, before='}\n"""By page id."""\n')
    path = os.pathsep.join((str(copy.parents[1]), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWED],
        cwd=copy.parents[1],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "followed\n", done.stderr
