"""The dashboard remembers which platforms a person has read of, in the file that the checklist reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.cli import Met
from rgt_tui.profiles import load_profile, seen_at


async def test_what_was_read_is_known_to_the_next_start_until_the_facts_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    profile, met = load_profile("autodl"), Met()
    assert not await met.knows(profile)
    assert await met.remember(profile) is None
    assert await Met().knows(profile)
    assert seen_at(profile) is not None
    assert not await met.knows(msgspec.structs.replace(profile, top_danger="another one"))
    assert not await met.knows(load_profile("runpod"))


async def test_a_state_directory_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert await Met().remember(load_profile("autodl"))
