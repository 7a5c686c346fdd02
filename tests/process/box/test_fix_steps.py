"""Steps of a fix on a box: what only looks, the preview of a removal, and the removal."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box.commands import fix_steps

from rgt_tui.fleet import FixRefused, FixTrials
from rgt_tui.fleet.work import agent_answers
from rgt_tui.gate import AuditEvent, AuditLog
from rgt_tui.health import LookTrial, RemovalTrial
from rgt_tui.model import BoxSpec, BoxState
from tests.process.box.harness import Agent


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "work" / "cache" / "viz"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.png").write_bytes(b"x" * 5000)
    return folder


def fix(agent: Agent, *words: str) -> tuple[int, dict[str, Any]]:
    done = agent.run("fix", *words)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def lines(agent: Agent, *stages: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    done = agent.run("fix", "--look", json.dumps(stages))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row["line"] for row in rows[:-1]], rows[-1]


def test_programs_run_without_a_shell(agent: Agent, cache: Path) -> None:
    found, end = lines(agent, ["ls", "-A", "--", str(cache)], ["head", "-n", "2"])
    assert (found, end) == (["0.png", "1.png"], {"status": 0, "cut": ""})
    found, _ = lines(agent, ["ls", "$(touch /tmp/owned); *"])
    assert "$(touch" in found[0]
    found, end = lines(agent, ["ulimit", "-n"])
    assert (found[0].isdigit() or found[0] == "unlimited") and end["status"] == 0
    found, end = lines(agent, ["no-such-program"])
    assert end["status"] == 127 and "no-such-program" in found[0]


def test_a_program_that_does_not_end_or_prints_much_is_ended() -> None:
    status, output, cut = fix_steps.run_pipeline([["sleep", "600"]], seconds=0.2)
    assert status and not output and "ended after" in cut
    _, output, cut = fix_steps.run_pipeline([["yes"]], most_bytes=1000)
    assert len(output) == 1000 and "more than" in cut
    _, output, cut = fix_steps.run_pipeline([["yes"], ["head", "-n", "1"]])
    assert (output, cut) == (b"y\n", "")


def test_a_preview_says_what_is_there_and_changes_nothing(agent: Agent, cache: Path) -> None:
    (cache / "run.log").write_text("x")
    status, row = fix(agent, "--", str(cache))
    assert (status, row["files"], row["folders"], row["inodes"], row["logs"]) == (0, 4, 1, 5, 1)
    assert row["bytes"] >= 15_000 and row["checkpoints"] == 0 and row["refused"] == []
    assert sum(row["owners"].values()) == 5 and row["disk"]["bytes_total"] > 0
    assert len(list(cache.iterdir())) == 4


def test_a_file_with_another_name_elsewhere_frees_nothing(agent: Agent, cache: Path) -> None:
    os.link(cache / "0.png", cache.parent.parent / "kept.png")
    _, row = fix(agent, "--", str(cache))
    assert (row["files"], row["inodes"]) == (3, 3)


def test_a_process_that_writes_there_is_named(agent: Agent, cache: Path) -> None:
    code = "import sys; f = open(sys.argv[1], 'a'); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(cache / "0.png")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cache,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        _, row = fix(agent, "--", str(cache))
        mine = [one for one in row["open"] if one["pid"] == process.pid]
        process.communicate()
    assert mine[0]["writes"] == 1 and mine[0]["works"] is True


@pytest.mark.parametrize("name", ["best.pt", "step_100.safetensors", "metrics.jsonl"])
def test_checkpoints_and_results_are_never_removed(agent: Agent, cache: Path, name: str) -> None:
    (cache / "deep").mkdir()
    (cache / "deep" / name).write_text("x")
    status, row = fix(agent, "--", str(cache))
    assert status == 1 and name in row["refused"][0]
    status, row = fix(agent, "--remove", row["digest"], "--", str(cache))
    assert (status, row["removed"], cache.exists()) == (1, False, True)


def test_links_kept_paths_and_what_contains_them_are_refused(agent: Agent, cache: Path) -> None:
    link = cache.parent.parent / "link"
    link.symlink_to(cache.parent)
    for words in (
        ["--", str(link / "viz")],
        ["--keep", str(cache), "--", str(cache)],
        ["--keep", str(cache.parent), "--", str(cache)],
        ["--keep", str(cache / "0.png"), "--", str(cache)],
        ["--keep", str(link / "viz" / "0.png"), "--", str(cache)],
        ["--", f"{cache}/../viz"],
        ["--", "relative/path"],
        ["--", "/tmp"],
        ["--", str(cache / "absent")],
    ):
        status, row = fix(agent, *words)
        assert status == 1 and row["refused"], words
    assert cache.exists()


def test_only_what_was_previewed_is_removed(agent: Agent, cache: Path) -> None:
    _, row = fix(agent, "--", str(cache))
    (cache / "new.png").write_text("x")
    status, again = fix(agent, "--remove", row["digest"], "--", str(cache))
    assert status == 1 and "changed" in again["refused"][0]
    assert len(list(cache.iterdir())) == 4
    (cache / "new.png").unlink()
    os.utime(cache, ns=(0, int(row["newest"] * 1e9)))
    _, row = fix(agent, "--", str(cache))
    status, done = fix(agent, "--remove", row["digest"], "--", str(cache))
    assert (status, done["removed"], cache.exists()) == (0, True, False)
    assert cache.parent.exists() and not list(cache.parent.iterdir())


def test_files_that_come_while_it_is_removed_are_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = fix_steps.inspect_removal(str(cache), [])["digest"]
    rename = os.rename

    def rename_late(old: str, new: str) -> None:
        if ".rgt-removing" in new:
            (cache / "late.png").write_text("x")
        rename(old, new)

    monkeypatch.setattr(os, "rename", rename_late)
    row = fix_steps.remove_previewed(str(cache), [], digest)
    assert not row["removed"] and "added" in row["refused"][0]
    assert sorted(path.name for path in cache.iterdir())[-1] == "late.png"


def test_where_it_cannot_be_moved_it_is_removed_in_place(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: str, new: str) -> None:
        raise OSError(28, "No space left on device")

    digest = fix_steps.inspect_removal(str(cache), [])["digest"]
    monkeypatch.setattr(os, "rename", refuse)
    assert fix_steps.remove_previewed(str(cache), [], digest)["removed"]
    assert not cache.exists()


# The client's side, with the real agent.


class Trials:
    """A box whose agent is a process of this machine."""

    def __init__(self, agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = BoxState(spec=BoxSpec("box", "h", results=(str(folder / "results"),)))
        self.audit = AuditLog(folder / "audit.jsonl")
        self.said: list[tuple[str, str]] = []

        async def query(
            connection: object,
            deployed: object,
            words: Sequence[str],
            *,
            data: bytes,
            seconds: float,
            each: Callable[[dict[str, Any]], None] | None = None,
        ) -> agent_answers.AgentAnswer:
            done = await asyncio.to_thread(agent.run, *words, stdin=data)
            rows = [
                row for line in done.stdout.splitlines() if (row := agent_answers.parse_row(line))
            ]
            for row in rows if each else ():
                assert each is not None
                each(row)
            return agent_answers.AgentAnswer(done.returncode, done.stderr.decode(), tuple(rows))

        monkeypatch.setattr("rgt_tui.fleet.work.fix_trials.query_agent", query)
        self.runner = FixTrials(
            lambda: (None, None),  # type: ignore[arg-type,return-value]
            lambda: self.state,
            self.audit,
            lambda text, level: self.said.append((text, level)),
            lambda: 5.0,
        )

    def events(self) -> list[tuple[AuditEvent, str, str]]:
        entries = [line.entry for line in self.audit.read_lines() if line.entry is not None]
        return [(entry.event, entry.deed, entry.typed) for entry in entries]


@pytest.fixture
def trials(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trials:
    return Trials(agent, tmp_path, monkeypatch)


async def test_looking_shows_the_output(trials: Trials, cache: Path) -> None:
    found: list[str] = []
    stages = (("ls", "--", str(cache)), ("wc", "-l"))
    assert await trials.runner.run_look(LookTrial(stages), found.append) == 0
    assert found == ["3"] and trials.events() == []


async def test_a_removal_needs_the_word_and_is_audited(trials: Trials, cache: Path) -> None:
    preview = await trials.runner.preview_removal(RemovalTrial(str(cache)))
    after = preview.room_after()
    assert after is not None and preview.disk is not None
    assert after.bytes_used == preview.disk.bytes_used - preview.bytes
    for typed in ("", "cache", str(cache)):
        with pytest.raises(FixRefused):
            await trials.runner.remove_previewed(preview, typed)
    assert cache.exists() and trials.events() == []
    done = await trials.runner.remove_previewed(preview, "viz")
    assert done.removed and not cache.exists()
    assert trials.events() == [
        (AuditEvent.REQUESTED, "remove", "viz"),
        (AuditEvent.ANSWER, "remove", ""),
    ]
    assert trials.said[0][1] == "info" and "removed" in trials.said[0][0]


async def test_a_change_after_the_preview_refuses_and_is_audited(
    trials: Trials, cache: Path
) -> None:
    preview = await trials.runner.preview_removal(RemovalTrial(str(cache)))
    (cache / "new.png").write_text("x")
    with pytest.raises(FixRefused, match="changed"):
        await trials.runner.remove_previewed(preview, "viz")
    assert cache.exists()
    assert [event for event, _, _ in trials.events()] == [AuditEvent.REQUESTED, AuditEvent.REFUSED]


async def test_what_the_fleet_file_names_meanwhile_is_kept(trials: Trials, cache: Path) -> None:
    preview = await trials.runner.preview_removal(RemovalTrial(str(cache)))
    spec = msgspec.structs.replace(trials.state.spec, results=(str(cache),))
    trials.state = msgspec.structs.replace(trials.state, spec=spec)
    with pytest.raises(FixRefused):
        await trials.runner.remove_previewed(preview, "viz")
    assert cache.exists() and trials.events() == []
