"""Paths that another user's training names: its links show the agent, which may read everything, nothing of root's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, Channel
from tests.security.conftest import NOBODY, training

pytestmark = [
    pytest.mark.serial,  # the agent looks at every process there is: other tests' trainings would be in the way
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user"),
]

WRITES = """
log, metrics = open("run.log", "w", 1), open("metrics.csv", "w", 1)
print("epoch 1 begins", file=log)
print("step,loss\\n1,0.5\\n2,0.25", file=metrics)
"""


@pytest.fixture
def secrets(open_folder: Path) -> Path:
    """What only root may read."""
    folder = open_folder / "secrets"
    folder.mkdir(mode=0o700)
    (folder / "run.log").write_text("s3cret\n")
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": n, "loss": 0.123}) + "\n" for n in range(9))
    )
    return folder


def seen(channel: Channel, looks: int) -> tuple[set[str], set[float], set[str]]:
    """Lines of logs, losses, and named sources, up to so many samples."""
    lines: set[str] = set()
    losses: set[float] = set()
    sources: set[str] = set()
    for frame in channel.frames():
        if isinstance(frame, protocol.LogLines):
            lines.update(frame.lines)
        elif isinstance(frame, protocol.Scalars):
            values = [point.values.get("loss") for point in frame.points]
            losses.update(value for value in values if isinstance(value, float))
        elif isinstance(frame, protocol.Found):
            sources.update(source for run in frame.runs for source in run.sources)
        looks -= isinstance(frame, protocol.Sample)
        if looks <= 0:
            break
    return lines, losses, sources


@pytest.mark.parametrize("uid", [NOBODY, 0], ids=["theirs", "ours"])
def test_a_directory_that_is_a_link_to_one_of_root_s_shows_nothing_of_it(
    agent: Agent, home_of_nobody: Path, secrets: Path, uid: int
) -> None:
    os.chown(home_of_nobody, uid, uid)
    (home_of_nobody / "out").symlink_to(secrets)
    os.chown(home_of_nobody / "out", uid, uid, follow_symlinks=False)
    agent.env["RGT_FIND_SECONDS"] = "0.5"
    touch = "open('mark', 'w').close()" if uid else "os.utime('out/metrics.jsonl')"
    with training(home_of_nobody, "", real=uid, effective=uid, code=touch):
        os.utime(secrets / "metrics.jsonl")
        lines, losses, sources = seen(agent.watch(interval=0.2, find=True), 60)
    mine = str(home_of_nobody / "out/metrics.jsonl") in sources
    assert (mine, losses) == ((False, set()) if uid else (True, {0.123}))
    assert "s3cret" not in lines


def test_a_log_that_is_swapped_for_a_link_is_not_read_on(
    agent: Agent, home_of_nobody: Path, secrets: Path
) -> None:
    agent.env["RGT_FIND_SECONDS"] = "0.5"
    with training(home_of_nobody, "", code=WRITES):
        channel = agent.watch(interval=0.2, find=True)
        before: set[str] = set()
        while "epoch 1 begins" not in before:
            before |= seen(channel, 1)[0]
        for name, target in (("run.log", "run.log"), ("metrics.csv", "metrics.jsonl")):
            # Theirs from the first moment that it stands there: a link of root's own is followed.
            link = home_of_nobody / f"{name}.new"
            link.symlink_to(secrets / target)
            os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
            link.rename(home_of_nobody / name)
        lines, losses, _ = seen(channel, 40)
    assert "s3cret" not in lines
    assert 0.123 not in losses


@pytest.mark.parametrize("verb", ["cat", "grep"])
def test_nor_do_the_verbs_that_read_what_was_found(
    agent: Agent, home_of_nobody: Path, secrets: Path, verb: str
) -> None:
    link = home_of_nobody / "run.log"
    link.symlink_to(secrets / "run.log")
    words = {"cat": ["cat", "--path", str(link)], "grep": ["grep", "s3c", str(link)]}[verb]
    assert "s3cret" in agent.run(*words).stdout.decode()
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    done = agent.run(*words)
    assert "s3cret" not in done.stdout.decode()
    assert "another user's symbolic link" in (done.stdout + done.stderr).decode()
