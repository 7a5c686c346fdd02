"""Words of a verb that a command line cannot hold come on standard input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.process.box.harness import Agent


def test_more_directories_than_a_command_line_holds_are_listed(
    agent: Agent, tmp_path: Path
) -> None:
    root = tmp_path / "box"
    (root / "out").mkdir(parents=True)
    (root / "out/best.pt").write_text("x")
    words = ["--results", str(root / "out")]
    words += [word for number in range(3000) for word in ("--list", f"{root}/{number:0200d}")]
    words += ["--list", str(root / "out")]
    line = json.dumps(words).encode() + b"\n"
    assert len(line) > 4 * (128 << 10)
    done = agent.run("results", "--words-from-stdin", stdin=line, env={"RGT_ROOTS": str(root)})
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert (done.returncode, [row["path"] for row in rows if "stamp" in row]) == (0, ["best.pt"])
    assert sum("error" in row for row in rows) == 3000, "the others hold no results"


@pytest.mark.parametrize("line", [b"", b"{}\n", b"[1]\n", b"\xff\n"])
def test_what_is_no_list_of_words_is_a_wrong_command_line(agent: Agent, line: bytes) -> None:
    done = agent.run("results", "--words-from-stdin", stdin=line)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"results: standard input has no JSON array of words\n"
