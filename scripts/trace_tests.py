"""Notes which arcs of the product each test runs and what it costs, as a plugin of pytest: see choose_tests.py.

The same file runs in every other process of a test, by ``exec`` of its text: the agent's Python
knows no packages. An arc is a step from one line to the next in one function; module level is left
out. Standard library, Python 3.8.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Generator
from types import CodeType, FrameType
from typing import Any

FOLDER = ""
"""Where the notes go: choose_tests.py puts it in, and only its own copy of this file runs."""

PACKAGES = ("rgt_tui/", "rgt_box/", "rgt_train/", "rgt_wire/")

QUIET = 25
"""Calls of a function without a new arc after which it is followed no longer in this process or
test.
"""


class Tracer:
    """Follows all threads of this process.

    Attributes:
        test: Node id of the running test in one of pytest's workers; None elsewhere, where the
            worker's file says it.
    """

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.test: str | None = None
        self.pid = 0
        self.files: dict[CodeType, str] = {}
        self.forget()

    def forget(self) -> None:
        """Begin again: a new test runs."""
        self.seen: set[tuple[str, int, int]] = set()
        self.quiet: dict[CodeType, int] = {}
        self.found: list[str] = []

    def start(self) -> None:
        """Follow what is called from now on."""
        sys.settrace(self.enter)
        threading.settrace(self.enter)

    def name_of(self, code: CodeType) -> str:
        """Return the path of a function of the product as the tree has it, else an empty text."""
        name = self.files.get(code)
        if name is None:
            places = [code.co_filename.rfind("/" + package) for package in PACKAGES]
            inside = max(places) >= 0 and code.co_name != "<module>"
            name = self.files[code] = code.co_filename[max(places) + 1 :] if inside else ""
        return name

    def enter(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        """Follow a call, as `sys.settrace` asks for it."""
        code = frame.f_code
        name = self.name_of(code)
        calls = self.quiet.get(code, 0)
        if not name or calls > QUIET:
            return None
        self.quiet[code] = calls + 1
        last = code.co_firstlineno
        self.note(name, -1, last)

        def step(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            nonlocal last
            if event == "line" and self.note(name, last, frame.f_lineno):
                self.quiet[code] = 0
            last = frame.f_lineno
            return step

        return step

    def note(self, name: str, first: int, second: int) -> bool:
        """Keep an arc; returns whether it is new."""
        arc = (name, first, second)
        if arc in self.seen:
            return False
        self.seen.add(arc)
        line = "%s:%d>%d" % arc
        if self.test is not None and self.pid == os.getpid():
            self.found.append(line)
            return True
        try:
            with open("%s/current-%s" % (FOLDER, self.worker)) as file:
                self.write(file.read(), [line])
        except OSError:  # a process in a file system of its own
            pass
        return True

    def write(self, test: str, lines: list[str]) -> None:
        """Append arcs of a test to the file of this process: no descriptor stays open, for daemons close them all."""
        with open("%s/arcs-%d" % (FOLDER, os.getpid()), "a") as file:
            file.write("".join("%s\t%s\n" % (test, line) for line in lines))


def worker_of_process() -> str | None:
    """Return whose test has started this process: a variable says it, or a path below pytest's directories."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        return worker
    words = [
        *os.environ.values(),
        *getattr(sys, "argv", ()),
        *getattr(sys, "orig_argv", ()),
        os.getcwd(),
    ]
    match = re.search(r"popen-(gw\d+)", " ".join(words))
    if match:
        return match.group(1)
    return None


def cpu_seconds() -> float:
    """Return what this process and its children, once they were waited for, have computed."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in each)


if "pytest" in sys.modules:
    import pytest

    tracer = Tracer(os.environ.get("PYTEST_XDIST_WORKER", "main"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
        """Note one test."""
        traced = os.environ.get("RGT_TRACE") == "arcs"
        began = cpu_seconds(), time.monotonic()
        if traced:
            with open(f"{FOLDER}/current-{tracer.worker}", "w") as file:
                file.write(item.nodeid)
            tracer.test, tracer.pid = item.nodeid, os.getpid()
            tracer.forget()
            tracer.start()
        result = yield
        if traced:
            tracer.write(item.nodeid, tracer.found)
        else:
            with open(f"{FOLDER}/costs-{tracer.worker}", "a") as file:
                took = cpu_seconds() - began[0], time.monotonic() - began[1]
                file.write(json.dumps([item.nodeid, *took]) + "\n")
        return result

elif sys.gettrace() is None:
    worker = worker_of_process()
    if worker:
        Tracer(worker).start()
