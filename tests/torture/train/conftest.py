from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

FULL = os.environ.get("RGT_TORTURE") == "full"
"""The full forms run by `make torture`; else the short ones that CI has time for."""


@pytest.fixture(scope="session")
def full() -> bool:
    return FULL


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process loses no page, so that its fsyncs only take time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    place = Path(tempfile.mkdtemp(prefix="rgt-torture-", dir="/dev/shm"))
    yield place
    shutil.rmtree(place)
