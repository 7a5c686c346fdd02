"""A box that stops itself, by the real commands: rgt is killed, the box parks with its own key, the next rgt tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.torture.demo.demo_process import demo, leftovers

# The agent that parks its box is in tests/process/box (`test_autostop`), what the next rgt says in tests/contract
# (`test_own_stop`): this is the demo's own play of them.
pytestmark = [pytest.mark.serial, pytest.mark.full]


def test_an_idle_box_parks_itself_while_nobody_watches_and_tells_the_next_rgt(
    tmp_path: Path,
) -> None:
    with demo(tmp_path, "--headless", "--until", "autostop", "--json") as running:
        code, out = running.finish(seconds=400)
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, lines[-1]["ok"], lines[-1]["problem"]) == (0, True, ""), running.progress
    steps = {line["step"]: line for line in lines[:-1]}
    assert steps["while it trains: what arming would mean"]["text"] != ""
    assert steps["the laptop's rgt is killed"]["exit"] == -9
    assert "EXITED" in steps["the box has parked itself, with its own key"]["text"]
    assert ", as armed" in steps["the next rgt: off, as armed"]["text"]
    assert steps["the next rgt tells the story"]["text"].startswith("parked itself at")
    assert steps["the audit log has the arming"]["text"] == "requested, armed"
    assert leftovers(tmp_path) == []
