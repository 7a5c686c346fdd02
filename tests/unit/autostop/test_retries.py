"""When a stop that failed is tried again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rgt_box.autostop import armed_plan, idle_clock, story
from rgt_box.autostop.watchman import AutostopMonitor


@pytest.mark.parametrize("mode", armed_plan.MODES)
def test_each_failure_doubles_the_wait_and_a_withdrawn_stop_begins_again(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGT_BOOT_ID", "b")
    monkeypatch.setenv("RGT_RAM_DIR", str(tmp_path / "none"))
    folder = str(tmp_path)
    request: dict[str, Any] = {
        "mode": mode, "action": "park", "boot": "b", "instance": "p", "box": "lab", "durable": ["/workspace"],
        "stop": {"kind": "runpod"},
    }  # fmt: skip
    at = idle_clock.ClockReading(1000.0, 1000.0, 1e9)
    armed = armed_plan.bind_plan(armed_plan.parse_request(request), at, None)
    armed_plan.save_plans(folder, {mode: armed})
    watchman = AutostopMonitor(folder, lambda kind, text, level: None)

    def waits(phase: str) -> float:
        """Return the seconds until the next try, after a stop has ended in a phase of its journal."""
        armed_plan.store_json(folder, story.JOURNAL, {"id": armed["id"], "phase": phase})
        assert not watchman._is_stopping(mode, at)
        return watchman._counts[mode].not_before - at.boot

    assert [waits(story.FAILED) for _ in range(6)] == [
        600.0,
        1200.0,
        2400.0,
        4800.0,
        7200.0,
        7200.0,
    ]
    waits(story.WITHDRAWN)
    assert waits(story.FAILED) == 600.0
