"""A result on its whole way off a rented box, with the real commands: nothing is lost, and one call goes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.demo.demo_process import demo, last_json, leftovers

# Each refusal of the gate is in tests/contract (`test_down`, `test_teardown`, `test_verified_pull`), and the commands
# from end to end are in `test_whole_chain`: this is the demo's own play of them.
pytestmark = [pytest.mark.serial, pytest.mark.full]


def test_the_gate_opens_only_when_nothing_can_be_lost_and_one_call_goes_out(tmp_path: Path) -> None:
    with demo(tmp_path, "--headless", "--until", "teardown", "--json") as running:
        code, out = running.finish(seconds=500)
    result = last_json(out)
    assert (code, result["ok"], result["problem"], result["deletes"]) == (0, True, "", 1), (
        running.progress
    )
    steps = {step["step"]: step for step in result["steps"]}
    shut = [name for name, step in steps.items() if name.startswith("shut") and step["exit"] == 1]
    assert shut == [
        "shut before anything was pulled",
        "shut: a byte of a copy flipped",
        "shut: a checkpoint newer than the copy",
    ]
    assert "not pulled" in steps[shut[0]]["text"]
    assert "trainer.safetensors" in steps[shut[1]]["text"]
    assert "late.safetensors" in steps[shut[2]]["text"]
    assert {
        "open",
        "open again",
        "a second start asks the provider",
        "the record is complete",
    } <= set(steps)
    assert leftovers(tmp_path) == []
