"""Which log a name means, and what is said of a name that means none. Pure."""

from __future__ import annotations

import pytest

from rgt_tui.cli import describe_unknown_log, is_path, list_log_paths, of_run
from rgt_tui.model import BoxSpec, BoxState, FoundRun, LogView, RunState
from rgt_tui.ssh import CatFailed


def found(name: str, log: str | None, *others: str) -> FoundRun:
    return FoundRun(name=name, pid=1, started=0.0, command="python train.py", log=log, logs=others)


BOX = BoxState(
    spec=BoxSpec(name="lab", host="lab"),
    runs=(RunState(name="curves-only"),),
    found=(
        found("exp/train", "/exp/out.txt"),
        found("exp/both", "tmux:%3", "tmux:%3", "/exp/both.txt"),
        found("exp/pane", "tmux:%4", "tmux:%4"),
        found("exp/none", None),
    ),
    logs=(LogView("/var/log/big.log", ()), LogView("tmux:%4", ())),
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("exp/train", "/exp/out.txt"), ("exp/both", "/exp/both.txt"), ("big", "/var/log/big.log"),
        ("big.log", "/var/log/big.log"), ("nothing", None), ("train", None),
    ],
)  # fmt: skip
def test_the_log_of_a_name(name: str, path: str | None) -> None:
    assert of_run(BOX, name) == path


def test_a_run_without_a_file_is_told_apart_from_no_run() -> None:
    with pytest.raises(
        CatFailed, match=r"exp/pane prints only to the tmux pane %4,.*tmux pipe-pane -o -t %4"
    ):
        of_run(BOX, "exp/pane")
    for name in ("exp/none", "curves-only"):
        with pytest.raises(
            CatFailed, match=rf"no log is known for {name}; if there is one, give its path"
        ):
            of_run(BOX, name)


def test_a_wrong_name_is_answered_with_the_right_ones_the_likest_first() -> None:
    words = describe_unknown_log(BOX, "exp/trian\x1b[2J")
    assert words.startswith("no run, log or file is called exp/trian; there are: exp/train, ")
    assert all(name in words for name in ("exp/pane", "curves-only", "big.log"))
    empty = BoxState(spec=BOX.spec)
    assert "knows of no runs and no logs" in describe_unknown_log(empty, "x")


def test_of_many_names_some_are_named() -> None:
    many = BoxState(
        spec=BOX.spec, runs=tuple(RunState(name=f"run-{number}") for number in range(100))
    )
    assert "and 80 more (rgt status lab --json)" in describe_unknown_log(many, "run-7")


def test_a_pane_is_no_path_of_a_log() -> None:
    assert list_log_paths(BOX) == ["/exp/out.txt", "/exp/both.txt", "/var/log/big.log"]


@pytest.mark.parametrize("word", ["/x", "~/x", "./x", "../x", "*.log", "x[12]", "x?"])
def test_what_can_only_be_a_path(word: str) -> None:
    assert is_path(word)
    assert not is_path("exp/train")
