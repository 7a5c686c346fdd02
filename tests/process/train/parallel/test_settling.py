"""The interpreter is not taken down while a thread of torch's still needs it."""

from __future__ import annotations

import subprocess
import sys

from tests.process.train.parallel.launching import ROOT

SCRIPT = """
import ctypes, threading
from rgt_train.ranks.torch_ranks import wait_for_foreign_threads, count_foreign_threads

api = ctypes.PyDLL(None)
api.PyInterpreterState_Main.restype = api.PyThreadState_New.restype = ctypes.c_void_p


def come():  # as a thread of torch's does while it frees its work: `threading` knows nothing of it
    return ctypes.c_void_p(api.PyThreadState_New(ctypes.c_void_p(api.PyInterpreterState_Main())))


def leave(state):
    api.PyThreadState_Clear(state)
    api.PyThreadState_Delete(state)


assert count_foreign_threads() == 0
state, go = come(), threading.Event()
known = threading.Thread(target=go.wait)
known.start()
assert count_foreign_threads() == 1, "a thread of Python's is none"
go.set()
known.join()
wait_for_foreign_threads(0.0, 0.05)
assert count_foreign_threads() == 1, "given up"
ended = threading.Event()
waiting = threading.Thread(target=lambda: (wait_for_foreign_threads(0.0, 600.0), ended.set()))
waiting.start()
assert not ended.wait(0.2), "it is still there"
leave(state)
waiting.join()
assert ended.is_set() and count_foreign_threads() == 0
print("settled")
"""
CALLBACK = """
import atexit
from rgt_train.callbacks import recorder

recorder.wait_for_foreign_threads = lambda: print("waited")
for world in (1, 2):
    recorder.StepPhases().begin_training(0, world)
    atexit.register(print, "began as one of", world)  # what was registered last is done first
"""


def said(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "remote")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_waits_for_threads_that_python_does_not_know_and_not_for_ever() -> None:
    assert said(SCRIPT) == "settled\n"


def test_a_callback_waits_for_them_at_the_very_end_where_there_are_ranks() -> None:
    assert said(CALLBACK) == "began as one of 2\nwaited\nbegan as one of 1\n"
