"""Every object that a command prints with `--json` about a box says which box, in the key `box`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec
import pytest

from rgt_tui.cli import entry
from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd

WORDS: dict[str, list[list[str]]] = {
    "doctor": [["lab"]],
    "remove": [["lab", "--dry-run"]],
    "status": [["lab"]],
    "watch": [["lab", "--for", "2s"]],
    "patrol": [["lab"]],
    "journal": [["lab", "--since", "1d"]],
    "mute": [["lab", "idle-gpu", "--for", "1h"], ["--list"]],
    "logs": [["lab", "--list"], ["lab", "LOG", "--lines", "3"]],
    "curves": [["lab"]],
    "run": [["lab", "--name", "one", "--wait", "--", "true"]],
    "queue": [
        ["lab", "status", "--job", "one"],
        ["lab", "check", "--job", "one"],
        ["lab", "reconcile", "--job", "one"],
    ],
    "code": [["lab"]],
    "stop": [["lab", "no-such-run", "--yes"]],
    "gpu-health": [["lab"]],
    "reap": [["lab"]],
    "grep": [["lab", "step", "LOG"]],
    "manifest": [["lab", "DIR"]],
    "mirror": [["lab", "DIR", "DIR-copy"]],
    "pull": [["lab", "DIR"], ["lab", "DIR", "--dry-run"]],
    "down": [["lab", "--park", "--dry-run"]],
    "check-box": [["lab", "--quick"]],
    "bid": [["lab", "0.5", "--dry-run"]],
    "autostop": [
        ["lab", "--status"],
        ["lab", "--idle", "45m", "--ask", "--dry-run"],
        ["lab", "--idle", "45m", "--dry-run"],
    ],
    "lease": [["lab", "8h", "--ask", "--dry-run"]],
    "keep": [["lab", "2h"]],
    "notify": [["lab", "--status"]],
    "mirrors": [["lab", "--show"]],
    "secret": [["lab", "--list"]],
    "push": [["lab", "DIR"], ["lab", "--list"], ["lab", "--prune", "--dry-run"]],
}
"""Command lines; LOG and DIR lie on the box, and here."""
OF_NO_ONE_BOX = {
    "metrics": "Prometheus text of all boxes",
    "night": "one object about the whole night; each entry of its boxes and advice names its box",
    "record": "one object about a file of all boxes",
    "triage": "a log file of this machine; --box only names it",
    "receipt": "each receipt as it is stored, which names its box",
    "audit": "the lines of the audit log as they were hashed; those about a box name it",
    "tunnel": "runs until Ctrl-C; see test_tunnels_and_editors.py",
}


def commands_about_boxes() -> set[str]:
    found = set()
    for action in entry.build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, parser in action.choices.items():
                known = {one.dest for one in parser._actions}
                if "json" in known and known & {"box", "boxes"}:
                    found.add(name)
    return found


def test_every_command_about_boxes_is_tried_here() -> None:
    assert {*WORDS, *OF_NO_ONE_BOX} == commands_about_boxes()


@pytest.mark.parametrize("command", WORDS)
def test_each_object_names_its_box(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd, command: str, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.0\nstep 2 loss 1.0\n")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/model.txt").write_text("weights")
    rgt.describe([msgspec.structs.replace(lab, logs=(str(log),))])
    objects = []
    for words in WORDS[command]:
        filled = [
            str(log) if word == "LOG" else word.replace("DIR", str(tmp_path / "results"))
            for word in words
        ]
        options = [] if "--" not in filled else ["--json"]
        done = rgt.on(command, *options, *filled, *([] if options else ["--json"]))
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert found or command in ("journal", "curves", "keep", "stop"), (words, done)
        objects += [(words, one) for one in found]
    named = [(words, one, one["box"]) for words, one in objects]
    # What the doctor finds on this machine is of no box, and says so.
    others = [
        found
        for found in named
        if found[2] != "lab" and not str(found[1].get("id")).startswith(("client.", "config."))
    ]
    assert others == []
    assert any(name == "lab" for _, _, name in named) or not named
