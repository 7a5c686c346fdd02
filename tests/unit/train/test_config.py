"""The config: a flat file, the command line above it, mistakes told with file, line and the nearest name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rgt_train import cli, exits
from rgt_train.config.fields import COMMON, TASKS, fields_of
from rgt_train.config.merge import merge
from rgt_train.config.reader import read
from rgt_train.exits import UsageError

from tests.unit.train.harness import ENV, ROOT, TIMEOUT


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return path


def test_reads_scalars_quotes_and_comments(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "---\n# a comment\n\nlr: 1e-3   # why\nname: 'it''s # no comment'\nother: \"a\\tb\" # yes\nempty:\nurl: http://x#y\n",
    )
    found = {key: scalar.text for key, scalar in read(path).items()}
    assert found == {
        "lr": "1e-3",
        "name": "it's # no comment",
        "other": "a\tb",
        "empty": "",
        "url": "http://x#y",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: 1\n  nested: 2\n", r":2: expected 'key: value'"),
        ("- a\n", r":1: expected 'key: value'"),
        ("lr: 1\nlr: 2\n", r":2: 'lr' is given twice, first at .*:1"),
        ("lr: [1, 2]\n", r":1: only plain values"),
        ('name: "open\n', r":1: the quotes"),
        ("lr:1\n", r":1: expected"),
    ],
)
def test_refuses_what_it_would_have_to_guess(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(write(tmp_path, text))


def test_the_command_line_beats_the_file(tmp_path: Path) -> None:
    config = merge(write(tmp_path, "epochs: 3\nlr: 0.5\n"), {"epochs": "7", "seed": None})
    assert (config.int("epochs"), config.float("lr"), config.int("seed")) == (7, 0.5, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nepoch: 3\n", r"c\.yaml:2: unknown key 'epoch' for task char_lm; did you mean 'epochs'\?"),
        ("Learning: 3\n", r"c\.yaml:1: unknown key 'Learning' for task char_lm; known are batch, "),
        ("noise: 3\n", r"unknown key 'noise' for task char_lm"),
        ("task: char_ml\n", r"c\.yaml:1: unknown task 'char_ml'; did you mean 'char_lm'\?"),
        ("epochs: 2.5\n", r"c\.yaml:1: epochs must be a whole number, not '2\.5'"),
        ("epochs: '2'\n", r"epochs must be a whole number"),
        ("batch: 0\n", r"batch must be at least 1, not 0"),
        ("lr: nan\n", r"lr must be at least 0"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        merge(write(tmp_path, text), {})


def test_mistakes_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, message in (
        (["--epochs", "x"], "--epochs: epochs must be a whole number, not 'x'"),
        (["--set", "lr"], "--set lr: expected KEY=VALUE"),
        (["--set", "widht=3"], "did you mean 'width'?"),
        ([], "--out DIR is missing"),
        (["--config", "/nowhere.yaml"], "cannot read the config /nowhere.yaml"),
    ):
        assert cli.main(argv) == exits.USAGE
        assert message in capsys.readouterr().err


def test_a_python_without_torch_is_told(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open')\n")
    done = subprocess.run(
        [sys.executable, "-m", "rgt_train", "--out", str(tmp_path / "run")],
        env={**ENV, "PYTHONPATH": f"{tmp_path}:{ENV['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == exits.USAGE
    assert (
        f"torch is not importable by {sys.executable}: ImportError: libcudart.so.12: cannot open"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs" / "trainer.md").read_text()
    for field in COMMON:
        assert re.search(rf"^\| `{field.name}` \| `{re.escape(str(field.default))}` \|", page, re.M), (
            field.name
        )
    for task in TASKS:
        for name in fields_of(task):
            assert f"| `{name}` |" in page, name
