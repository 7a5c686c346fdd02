"""What holds for all tests of the trainer."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def freeze_other_objects() -> Iterator[None]:
    """Keep what other tests have left in this process out of the trainer's search for state.

    It goes through all objects of the process; a worker has millions of them, a training a few.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def leave_the_work_tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in a directory that git does not know: each launch would ask it about this whole tree."""
    with contextlib.chdir(tmp_path_factory.getbasetemp()):
        yield
