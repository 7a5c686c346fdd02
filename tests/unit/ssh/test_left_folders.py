"""Directories of killed processes, in which `ssh` found a key's name: removed by the next one, after an hour."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from rgt_tui.ssh.openssh_client import FOLDER, remove_left_folders

NO_PROCESS = (1 << 22) + 1
"""More than the kernel gives out (PID_MAX_LIMIT)."""


def test_only_old_directories_of_processes_that_have_ended_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = {
        "ended": f"{FOLDER}{NO_PROCESS}-a",
        "ended just now": f"{FOLDER}{NO_PROCESS}-b",
        "alive": f"{FOLDER}{os.getpid()}-c",
        "of somebody": f"{FOLDER}notes-d",
    }
    for what, name in names.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "identity.pub").write_text("key")
        if what != "ended just now":
            os.utime(tmp_path / name, (1, 1))
    (tmp_path / f"{FOLDER}{NO_PROCESS}-link").symlink_to(tmp_path / names["of somebody"])
    remove_left_folders()
    assert not (tmp_path / names.pop("ended")).exists()
    assert all((tmp_path / name / "identity.pub").exists() for name in names.values())
