"""What a launch says about its beginning."""

from __future__ import annotations

from typing import Any

import pytest

from rgt_tui.fleet.work import launching

ROW = {
    "phase": "begins",
    "verdict": "alive",
    "cell": "a",
    "seconds": 0.4,
    "step": 9,
    "first": "hello",
}


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (
            {"began": 41, "saved": [40, "/out/model_40.pt"]},
            "resumed at step 41, after step 40 of /out/model_40.pt",
        ),
        (
            {"began": 39, "saved": [40, "/out/model_40.pt"]},
            "resumed at step 39, after step 40 of /out/model_40.pt",
        ),
        (
            {"began": 1, "saved": [40, "/out/\x1b[31mmodel.pt"]},
            "NOT RESUMED: it began at step 1, and /out/model.pt has step 40",
        ),
        ({"began": 1, "saved": None}, ""),
        ({"began": None, "saved": [40, "/out/model_40.pt"]}, ""),
        ({"began": 1, "saved": ["x", 2]}, ""),
    ],
)
def test_the_first_step_is_compared_with_the_newest_checkpoint(
    over: dict[str, Any], said: str
) -> None:
    lines = [line.strip() for line in launching.describe_phase({**ROW, **over})]
    assert lines[:2] == ["ALIVE  a after 0.4 s: step 9", "first line: hello"]
    assert "".join(lines[2:3]) == said
    assert any("stop it before it replaces" in line for line in lines) == ("NOT" in said)
