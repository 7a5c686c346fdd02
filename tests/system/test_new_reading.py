"""Follows the recipe *a reading of a GPU* of CONTRIBUTING.md with the fan: from the driver into the box pane."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from rgt_box.sampling.gpu_nvml import NvmlSession

from rgt_tui.model import GpuReading
from rgt_tui.ui.widgets import gpu_lines, text_of
from tests.process.box.test_gpu import FakeNvml
from tests.system.tree import ROOT
from tests.ui.boxes import running_box

RECIPE = (
    "remote/rgt_box/sampling/gpu_nvml.py",
    "rgt_tui/model/protocol.py",
    "rgt_tui/ui/widgets/gpu_cards.py",
)
"""The three files, in their order."""


class WithFan(FakeNvml):
    """A card with a fan; a card of a server answers that it knows of none."""

    def __init__(self, percent: int | None) -> None:
        super().__init__(1)
        self._percent = percent

    def __getattr__(self, name: str) -> Any:
        if name != "nvmlDeviceGetFanSpeed":
            return super().__getattr__(name)
        return self._unsupported if self._percent is None else lambda handle: self._percent


def shown(percent: int | None, width: int) -> list[str]:
    """Return the lines of the pane for what the agent reads and sends."""
    frame = json.dumps(NvmlSession("", WithFan(percent)).read()[0])
    gpu = msgspec.json.decode(frame, type=GpuReading)
    assert gpu.error is None
    return [text_of(row).rstrip() for row in gpu_lines(gpu, running_box(), width)]


@pytest.mark.parametrize(("percent", "said"), [(45, "fan 45%"), (0, "fan 0%"), (104, "fan 104%")])
def test_the_fan_of_a_card_is_read_sent_and_shown(percent: int, said: str) -> None:
    wide, narrow = shown(percent, 60), shown(percent, 26)
    assert wide[-1].endswith(said)
    assert wide[-1].startswith("55 ")
    assert narrow[-1] == said, "on a line of its own where it does not fit"


def test_a_card_without_a_fan_says_nothing_of_it() -> None:
    assert not any("fan" in row for row in shown(None, 60))


def test_it_took_the_three_files_that_the_recipe_names() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipe = text.partition("**a reading of a GPU**")[2].partition("\n\n")[0]
    assert [name for name in RECIPE if name in recipe] == list(RECIPE)
    found = {
        str(path.relative_to(ROOT))
        for folder in ("rgt_tui", "remote")
        for path in (ROOT / folder).rglob("*.py")
        if "fan_pct" in path.read_text(encoding="utf-8")
    }
    assert found == set(RECIPE)
