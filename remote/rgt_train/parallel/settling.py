"""The end of a process with torch.distributed: its threads let go of Python before the interpreter is taken down.

A gloo thread frees its last piece of work a moment after that was done, and needs the interpreter for it. When the main
thread has begun to end by then, CPython ends that thread in the middle of C++ code and the process aborts: "terminate
called without an active exception", exit code -6, and torchrun calls a finished run failed. Seen in 4 of 46 ends of a
plain loop on 2 busy cores, with and without `destroy_process_group` (torch 2.13, CPython 3.11; see
https://github.com/pytorch/pytorch/issues/190489).
"""

from __future__ import annotations

import ctypes
import threading
import time

QUIET_S = 0.1
"""So long the interpreter is free for others at least: a thread that is about to ask for it has asked by then."""
LIMIT_S = 1.0
"""Threads that keep their hold on Python for good (those of autograd on a GPU do) are not waited for longer."""
_TICK_S = 0.01


def settle(quiet_s: float = QUIET_S, limit_s: float = LIMIT_S) -> None:
    """Wait until no thread that Python does not know has anything to do with it; for the very end of a process.

    Args:
        quiet_s: Seconds that are always waited.
        limit_s: Seconds after which it is given up.
    """
    begun = time.monotonic()
    while True:
        time.sleep(_TICK_S)  # which lets go of the interpreter
        passed = time.monotonic() - begun
        if passed >= limit_s or (passed >= quiet_s and strangers() == 0):
            return


def strangers() -> int:
    """Return how many threads hold a state of the interpreter that `threading` does not know, waiting ones too."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Main.restype = ctypes.c_void_p
    api.PyInterpreterState_ThreadHead.restype = ctypes.c_void_p
    api.PyThreadState_Next.restype = ctypes.c_void_p
    found, state = 0, api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Main()))
    while state:
        found += 1
        state = api.PyThreadState_Next(ctypes.c_void_p(state))
    return max(0, found - len(threading.enumerate()))
