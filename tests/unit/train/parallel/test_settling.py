"""The interpreter is not taken down while a thread of torch's still needs it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import pytest
from rgt_train.parallel.settling import settle, strangers

api = ctypes.PyDLL(None)


@pytest.fixture
def foreign() -> Iterator[list[int]]:
    """A thread state that `threading` knows nothing of, as torch's threads have one while they free their work."""
    api.PyInterpreterState_Main.restype = ctypes.c_void_p
    api.PyThreadState_New.restype = ctypes.c_void_p
    states = [int(api.PyThreadState_New(ctypes.c_void_p(api.PyInterpreterState_Main())))]
    yield states
    for state in states:
        drop(state)


def drop(state: int) -> None:
    api.PyThreadState_Clear(ctypes.c_void_p(state))
    api.PyThreadState_Delete(ctypes.c_void_p(state))


def test_only_threads_that_python_does_not_know_are_strangers(foreign: list[int]) -> None:
    known = strangers() - 1
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    assert strangers() == known + 1
    go.set()
    thread.join()
    drop(foreign.pop())
    assert strangers() == known


def test_it_waits_for_them_and_not_for_ever(foreign: list[int]) -> None:
    settle(0.0, 0.05)
    assert len(foreign) == 1, "given up"
    ended = threading.Event()

    def end() -> None:
        settle(0.0, 60.0)
        ended.set()

    before = strangers() - 1
    if before:
        pytest.fail("another test has left a thread of torch's behind")
    waiting = threading.Thread(target=end)
    waiting.start()
    assert not ended.wait(0.1)
    drop(foreign.pop())
    waiting.join()
    assert ended.is_set()
