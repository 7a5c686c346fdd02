"""The whole demo, once, as a person sees it: three stories, and the advice followed by hand over real ssh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.torture.demo.demo_process import demo, last_json, leftovers

pytestmark = pytest.mark.serial


def test_three_stories_happen_and_the_advice_lets_the_cell_go_on(tmp_path: Path) -> None:
    tmp = tmp_path / "a path with spaces"
    with demo(tmp, "--headless", "--until", "story", "--json") as running:
        running.wait_for("story told: inodes")
        # Not "none is left": the save that failed took some of the last ones, and gave them back when it cleaned up.
        assert running.ssh("vast-demo", "df --output=ipcent /workspace").split()[-1] == "100%"
        running.ssh("vast-demo", "rm -rf -- /workspace/.cache/viz")
        running.wait_for(r"vast-demo (lstm-a|inodes of /workspace): no longer a problem: .*\(U7\)")
        code, out = running.finish()
    assert code == 0, running.progress
    assert leftovers(tmp) == []
    result = last_json(out)
    assert result["stories"] == {"queue": True, "resume": True, "inodes": True}
    boxes: dict[str, dict[str, Any]] = {box["name"]: box for box in result["boxes"]}
    assert list(boxes) == ["autodl-demo", "runpod-demo", "vast-demo"]
    for box in boxes.values():
        assert box["gaps"] == 0
        assert box["duplicates"] == 0
        assert box["samples"] > 10
        assert box["agent_rss_bytes"] > 1_000_000
        assert box["last_loss"] < 2.5
        assert box["spent"] > 0
        assert box["per_hour"] > 0
        assert box["spent_usd"] == (box["spent"] if box["currency"] == "USD" else None)
        assert box["meter"] == "compute+storage"
    assert {name: box["currency"] for name, box in boxes.items()} == {
        "autodl-demo": "CNY",
        "runpod-demo": "USD",
        "vast-demo": "USD",
    }
    assert boxes["autodl-demo"]["cells"] == {"total": 4, "done": 4, "failed": 0, "running": 0}
    assert boxes["runpod-demo"]["resumed"]
    assert not boxes["autodl-demo"]["resumed"]
    assert boxes["vast-demo"]["findings"] == []
    assert boxes["vast-demo"]["last_step"] > 0
    # What is gone from the disk has not taken the run with it.
    assert any("runpod-demo spot-lm resumed from step" in line for line in running.progress)


def test_a_story_that_is_missing_is_named(tmp_path: Path) -> None:
    with demo(tmp_path, "--headless", "--until", "story", "--for", "6", "--json") as running:
        code, out = running.finish()
    assert code == 1
    assert not all(last_json(out)["stories"].values())
    assert "missing: queue" in running.progress[-1]
    assert leftovers(tmp_path) == []
