"""What `queue check` refuses, with file, line and remedy, and what `--fix` mends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from rgt_box.queue import queue_check, queue_file
from rgt_box.queue.queue_file import Job, parse_queue

from tests.process.box.harness import Agent, make_job


def checked(agent: Agent, job: Path, *words: str) -> tuple[int, list[str]]:
    done = agent.run("queue", "check", "--job", str(job), "--json", *words)
    return done.returncode, json.loads(done.stdout)["problems"]


def test_every_problem_names_its_file_its_line_and_what_to_do(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", ["true"], ["a"])
    queue, settings = job / "queue.txt", job / "job.json"
    queue.write_text("# head\na.toml lm\nsub/a.yaml lm\nmissing.toml lm\nlonely\na.toml lm 0\n")
    settings.write_text(
        '{\n "out": "/x/{name}",\n "command": "run {cgf} \\"",\n "retries": -1,\n "detach": "screen"\n}'
    )
    status, problems = checked(agent, job)
    assert status == 2
    for start, remedy in (
        (f"{queue}:3: the name 'a' is already taken by line 2", "rename one of the configs"),
        (f"{queue}:4: the config {job}/missing.toml does not exist", "correct the line"),
        (f"{queue}:5: 1 words", "write <cfg> <task> [epochs]"),
        (f"{queue}:6: epochs", "above 0"),
        (f'{settings}:3: "command" cannot be split', "close the quote"),
        (f'{settings}:4: "retries"', "must not be negative"),
        (f'{settings}:5: "detach"', "one of auto, tmux, setsid, slurm"),
    ):
        assert any(text.startswith(start) and remedy in text for text in problems), (
            start,
            problems,
        )
    assert len(problems) == 7
    run = agent.run("queue", "run", "--job", str(job))
    assert (run.returncode, run.stderr.decode().splitlines()) == (2, problems)


def test_windows_line_ends_are_found_everywhere_and_mended(agent: Agent, tmp_path: Path) -> None:
    script = tmp_path / "job" / "run.sh"
    job = make_job(tmp_path / "job", ["sh", "run.sh", "{cfg}"], ["a", "b c"])
    (job / "queue.txt").write_bytes(b"\xef\xbb\xbfa.toml lm\r\nb.toml lm\r\n")
    (job / "a.toml").write_bytes(b"x = 1\r\n")
    (job / "b.toml").write_bytes(b"x = 1\n")
    script.write_bytes(b"#!/bin/sh\ncat $1\r\n")
    script.chmod(0o750)
    status, problems = checked(agent, job)
    assert (status, len(problems)) == (2, 3)
    assert problems[0].startswith(f"{job}/queue.txt:1: begins with a byte-order mark; fix: sed -i")
    assert problems[1].startswith(
        f"{job}/a.toml:1: has Windows line endings; fix: sed -i 's/\\r$//' {job}/a.toml"
    )
    assert problems[2].startswith(f"{script}:2: ")
    for text in problems[1:]:  # the command that is offered really mends it
        subprocess.run(text.split("fix: ")[1].split(" (or")[0], shell=True, check=True)
    assert checked(agent, job)[1] == problems[:1]
    (job / "a.toml").write_bytes(b"x = 1\r\n")
    assert agent.run("queue", "check", "--job", str(job), "--fix").returncode == 0
    assert (job / "queue.txt").read_bytes() == b"a.toml lm\nb.toml lm\n"
    assert (job / "a.toml").read_bytes() == b"x = 1\n"
    assert script.stat().st_mode & 0o777 == 0o750
    assert not [name for name in os.listdir(job) if "tmp" in name]
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0


def test_mending_keeps_a_link_and_leaves_binary_files_alone(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"a\rb\r\n")
    (tmp_path / "link").symlink_to("real")
    queue_check.fix_line_ends(str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"a\nb\n"
    (tmp_path / "data").write_bytes(b"\0\r\n")
    assert queue_check.first_carriage_return(str(tmp_path / "data")) is None
    queue_check.fix_line_ends(str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == b"\0\r\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("a.toml lm\n".encode("utf-16"), ":1: is not plain text (probably UTF-16"),
        (b"ok lm\n\xff.toml lm\n", ":2: is not UTF-8"),
        (b"a lm \xc2\xb2\n", ":1: epochs"),  # a superscript two is a digit to some
    ],
)
def test_what_is_no_text_is_no_crash(data: bytes, words: str) -> None:
    assert words in parse_queue(data, "q")[1][0]


def test_lines_are_counted_as_an_editor_does() -> None:
    data = "a lm\u2028\x0c# x\nb lm\n".encode()
    assert [line.number for line in parse_queue(data, "q")[0]] == [1, 2]


@pytest.mark.parametrize(
    ("text", "filled", "strange"),
    [
        ("{name}", "n", []),
        ("{{name}}", "{name}", []),
        ("${name} $HOME", "${name} $HOME", []),
        ('{"a": {"b": 1}} {}', '{"a": {"b": 1}} {}', []),
        ("{nmae}", "{nmae}", ["nmae"]),
        ("{cfg}", "{name}", []),
    ],
)
def test_fields(text: str, filled: str, strange: list[str]) -> None:
    assert queue_file.fill_template(text, {"name": "n", "cfg": "{name}"}) == filled
    assert queue_file.unknown_fields(text) == strange


def test_a_string_is_split_without_a_shell(agent: Agent, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", [], ["a"])
    settings = json.loads((job / "job.json").read_bytes())
    settings["command"] = "echo '{name} $(id)' {task};ls"
    (job / "job.json").write_text(json.dumps(settings))
    ((line,), _) = Job(str(job)).read_lines()
    assert Job(str(job)).command_of(line) == ["echo", "a $(id)", "lm;ls"]
    assert agent.run("queue", "run", "--job", str(job)).returncode == 0
    assert (job / "logs" / "a.log").read_text() == "a $(id) lm;ls\n"
