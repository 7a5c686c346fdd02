"""The dashboard remembers which platforms a person has read of, in the file that the checklist reads."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.cli import SeenPlatformFile
from rgt_tui.profiles import load_profile, seen_at


async def test_what_was_read_is_known_to_the_next_start_until_the_facts_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    profile, met = load_profile("autodl"), SeenPlatformFile()
    assert not await met.has_seen(profile)
    assert await met.record_seen(profile) is None
    assert await SeenPlatformFile().has_seen(profile)
    assert seen_at(profile) is not None
    assert not await met.has_seen(msgspec.structs.replace(profile, top_danger="another one"))
    assert not await met.has_seen(load_profile("runpod"))


async def test_a_state_directory_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert await SeenPlatformFile().record_seen(load_profile("autodl"))
