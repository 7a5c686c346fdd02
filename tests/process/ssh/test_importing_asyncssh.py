"""The import of asyncssh: what it starts, what it finds, and what is left of us behind it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere nothing is started for it"
)

IMPORT = """
import ctypes.util, json, sys
from rgt_tui.ssh import native_libraries
find, finders = ctypes.util.find_library, len(sys.meta_path)
answer = json.loads(sys.argv[1])
if answer is not None:
    native_libraries.may_be_there = lambda name: answer
started = []
sys.addaudithook(lambda event, told: started.append(str(told[0])) if event == "subprocess.Popen" else None)
import asyncssh
by_the_import = tuple(started)
assert ctypes.util.find_library is find, "left behind"
assert len(sys.meta_path) == finders - 1, "left behind"
with native_libraries.fast_library_search():
    quick = ctypes.util.find_library("oqs")
print(json.dumps([by_the_import, native_libraries.may_be_there("oqs"), quick, find("oqs")]))
"""


def imported(answer: bool | None, **env: str) -> list[Any]:
    """Return what was started, whether liboqs may be there, and what is found of it: quickly, and as ever.

    Args:
        answer: Given for each library that is asked for; None = by what there is.
        env: Beside the environment.
    """
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, json.dumps(answer)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    told: list[Any] = json.loads(done.stdout)
    return told


def test_nothing_is_started_for_what_is_not_there() -> None:
    assert imported(False)[0] == []


def test_what_may_be_there_is_looked_for_as_ever() -> None:
    assert imported(True)[0] != []


def test_a_library_where_the_environment_says_is_found_as_by_python(tmp_path: Path) -> None:
    loaded = re.search(
        r"(/\S+/libc\.so\.6|/\S+/libc-\S+\.so)$", Path("/proc/self/maps").read_text(), re.MULTILINE
    )
    assert loaded is not None
    shutil.copy(loaded[1], tmp_path / "liboqs.so")
    _, may, quick, found = imported(None, LD_LIBRARY_PATH=str(tmp_path))
    assert may
    assert quick == found
