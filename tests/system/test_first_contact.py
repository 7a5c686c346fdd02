"""What a person meets first: an odd terminal, streams that are closed or full, a pip install of the real wheel."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.ssh.conftest import free_port

RGT = [sys.executable, "-m", "rgt_tui"]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet of one box that refuses the connection."""
    path = tmp_path / "fleet.toml"
    path.write_text(f'[boxes.lab]\nhost = "127.0.0.1"\nport = {free_port()}\nssh_config = "none"\n')
    return path


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RGT_", "XDG_"))}
    return kept | {"HOME": str(home)} | more


def in_a_terminal(words: list[str], **more: str) -> tuple[int, str]:
    """Run rgt in a terminal of its own; return its exit status and everything that it wrote."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvpe(RGT[0], [*RGT, *words], {**os.environ, **more})
    said = b""
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:
            break
        if not data:
            break
        said += data
    os.close(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


@pytest.mark.parametrize("words", [["--fleet", "FLEET"], ["demo"]])
@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_dumb_terminal_gets_a_line_instead_of_a_screen(fleet: Path, words: list[str], term: str) -> None:
    words = [str(fleet) if word == "FLEET" else word for word in words]
    code, said = in_a_terminal(words, TERM=term, HOME=str(fleet.parent), NO_COLOR="1")
    assert code == 2
    assert f"TERM={term}" in said
    assert "\x1b" not in said


def test_windows_gets_one_line() -> None:
    code = (
        "import sys; sys.platform = 'win32'; from rgt_tui.cli.entry import main; sys.exit(main(['status']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "WSL" in done.stderr


def shell(script: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script, "sh", *RGT, *words],
        env=environment(home), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("command", "code"), [("status", 3), ("patrol", 2)])
def test_a_closed_standard_output_changes_no_exit_status(fleet: Path, command: str, code: int) -> None:
    done = shell('exec "$@" >&-', fleet.parent, command, "--fleet", str(fleet))
    assert (done.returncode, done.stderr) == (code, "")


def test_with_every_stream_closed_the_exit_status_is_true(fleet: Path) -> None:
    done = shell('exec "$@" <&- >&- 2>&-', fleet.parent, "status", "--fleet", str(fleet))
    assert done.returncode == 3


def test_no_file_becomes_standard_output_where_that_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    done = shell('exec "$@" >&-', tmp_path, "init", "--path", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "written" not in path.read_text()


@pytest.mark.parametrize(
    ("words", "code"),
    [(["status"], 3), (["patrol"], 2), (["status", "--json"], 3), (["doctor"], 1)],
)
def test_a_full_standard_output_is_named_and_never_passes_for_a_finding(
    fleet: Path, words: list[str], code: int
) -> None:
    done = shell('exec "$@" >/dev/full', fleet.parent, *words, "--fleet", str(fleet))
    assert done.returncode == code
    assert done.stderr.strip().splitlines()[-1:] == [
        "rgt: cannot write to standard output: No space left on device"
    ]


def test_help_into_a_full_disk_is_no_traceback(tmp_path: Path) -> None:
    done = shell('exec "$@" >/dev/full', tmp_path, "--help")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr


@pytest.mark.parametrize(("command", "code"), [("status", 3), ("patrol", 2), ("doctor", 1)])
def test_a_pipe_that_ends_early_is_quiet(fleet: Path, command: str, code: int) -> None:
    done = shell('"$@" | true; exit ${PIPESTATUS[0]}', fleet.parent, command, "--fleet", str(fleet))
    assert (done.returncode, done.stderr) == (code, "")
