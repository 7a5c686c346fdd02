"""Where something can be run for a check, its words are those of a command that there is."""

from __future__ import annotations

import shlex

import pytest

from rgt_tui.cli import entry
from rgt_tui.health import CHECKS, LifecycleCheck

RUNNABLE = [check for check in CHECKS if check.command]


@pytest.mark.parametrize("check", RUNNABLE, ids=lambda check: check.id)
def test_its_command_can_be_typed(check: LifecycleCheck) -> None:
    words = shlex.split(check.command.format(box="lab"))
    assert words[0] == "rgt"
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    assert entry.parse_command_line(own).command == words[1]


def test_the_tools_of_the_agent_are_offered() -> None:
    offered = {check.command.split()[1] for check in RUNNABLE}
    assert offered >= {"gpu-health", "reap", "mirror", "grep", "queue", "run", "verify", "doctor"}
