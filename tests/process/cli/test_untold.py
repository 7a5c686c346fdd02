"""How commands end that could not tell: never with a status that says something about a box."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rgt_tui.cli import dashboard, parse_command_line, status
from tests import warm_rgt
from tests.free_ports import free_port

RGT = [sys.executable, "-m", "rgt_tui.cli.entry"]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet of one box that refuses the connection."""
    path = tmp_path / "fleet.toml"
    path.write_text(f'[boxes.lab]\nhost = "127.0.0.1"\nport = {free_port()}\nssh_config = "none"\n')
    return path


def environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RGT_", "XDG_"))}
    return kept | {"HOME": str(home)}


def test_a_patrol_that_nobody_reads_could_not_tell(fleet: Path) -> None:
    process = subprocess.Popen(
        [*RGT, "patrol", "--fleet", str(fleet)],
        stdout=subprocess.PIPE,
        env=environment(fleet.parent),
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 2


def test_a_patrol_whose_lines_find_no_room_could_not_tell(fleet: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*RGT, "patrol", "--fleet", str(fleet)],
            stdout=full, stderr=subprocess.PIPE, env=environment(fleet.parent), timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, b"No space left" in done.stderr) == (2, True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("profiles", "autodl"), 0, b"AutoDL (autodl)"),
        (("profiles", "list"), 0, b"vastai"),
        (("doctor",), 1, b"box.lab.tcp"),
        (("patrol",), 2, b"lab"),
        (("up", "--help"), 0, b"--max-price"),
        (("handbook", "U7"), 0, b"inodes"),
    ],
)
def test_a_character_that_the_locale_lacks_ends_no_command(
    fleet: Path, encoding: str, words: tuple[str, ...], status: int, says: bytes
) -> None:
    done = subprocess.run(
        [*RGT, "--fleet", str(fleet), *words],
        env=environment(fleet.parent) | {"PYTHONIOENCODING": encoding}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, says in done.stdout, b"Traceback" in done.stderr) == (
        status,
        True,
        False,
    ), done


def test_json_loses_nothing_in_a_locale_that_lacks_the_character(fleet: Path) -> None:
    rows = [
        subprocess.run(
            [*RGT, "profiles", "autodl", "--json"], capture_output=True, timeout=60, check=True,
            env=environment(fleet.parent) | {"PYTHONIOENCODING": encoding},
        ).stdout
        for encoding in ("ascii", "latin-1", "utf-8")
    ]  # fmt: skip
    assert rows[0].isascii() and not rows[2].isascii()
    assert json.loads(rows[0]) == json.loads(rows[1]) == json.loads(rows[2])


def test_a_status_loses_nothing_in_a_locale_that_lacks_the_character(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[boxes.lab]\nhost = "зал.invalid"\nssh_config = "none"\n', encoding="utf-8")
    for command in ("status", "patrol"):
        rows = [
            subprocess.run(
                [*RGT, command, "--fleet", str(path), "--json"], capture_output=True, timeout=60, check=False,
                env=environment(tmp_path) | {"PYTHONIOENCODING": encoding},
            ).stdout
            for encoding in ("ascii", "latin-1", "utf-8")
        ]  # fmt: skip
        assert all("root@зал.invalid" in json.loads(row)["reason"] for row in rows), rows


def test_a_working_directory_that_was_removed_is_no_fault_of_rgt(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *RGT, "patrol"],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.startswith("rgt: no fleet file")) == (2, True), done.stderr


def test_a_mistake_of_rgt_itself_could_not_tell(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("made up")

    monkeypatch.setattr("rgt_tui.cli.status.open_boxes", broken)
    monkeypatch.setattr(
        "rgt_tui.cli.printing.drop_output", lambda: None
    )  # it is the test runner's own
    assert status.run_patrol(parse_command_line(["patrol", "--fleet", str(fleet)])) == 2
    assert "unknown: rgt itself failed (RuntimeError)" in capfd.readouterr().err


@pytest.mark.parametrize("words", [("logs", "lab", "/x"), ("logs", "lab")])
def test_an_ssh_config_that_cannot_be_used_is_no_box_out_of_reach(
    fleet: Path, words: tuple[str, ...]
) -> None:
    fleet.write_text(fleet.read_text().replace('"none"', '"/no/such/config"'))
    done = warm_rgt.rgt(
        words[0], "--fleet", str(fleet), *words[1:], cwd=fleet.parent, env=environment(fleet.parent)
    )
    assert (done.returncode, "no such ssh_config file" in done.stderr) == (2, True), done.stderr


def test_without_a_terminal_the_dashboard_names_the_commands_that_need_none(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dashboard.open_dashboard(parse_command_line(["--fleet", str(fleet)])) == 2
    assert "without one use `rgt status` or `rgt watch`" in capsys.readouterr().err
