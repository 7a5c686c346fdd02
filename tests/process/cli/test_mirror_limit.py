"""`rgt mirror … --through laptop --timeout S`: a program that does not end fails with the limit, and is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rgt_tui.cli.work import object_mirror


def test_a_program_that_hangs_fails_with_its_limit_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hanging))
    start_process = asyncio.create_subprocess_exec
    children: list[Process] = []

    async def start_recorded(*words: str, **options: Any) -> Process:
        children.append(await start_process(*words, **options))
        return children[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_recorded)
    upload = object_mirror.ObjectUpload(Mock(), None, "s3://box/x", 0.01)
    with pytest.raises(object_mirror.StoreFailed, match=r"did not end within 0\.01 s"):
        asyncio.run(upload.send_rows("plan", str(tmp_path), [{"path": "a", "size": 1}]))
    assert [child.returncode for child in children] == [-signal.SIGKILL]
