"""`rgt exec` and `rgt ssh` as a person types them, against a real sshd."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd, keygen
from tests.pseudo_terminal import PseudoTerminal


def piped(rgt: Rgt, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    entry = rgt.command(words[0], "--fleet", str(rgt.fleet), *words[1:])
    return subprocess.run(
        entry,
        input=given,
        capture_output=True,
        cwd=rgt.folder,
        env=rgt.environment(),
        timeout=PATIENCE,
        check=False,
    )


def test_words_stay_what_they_are_and_one_is_a_line_of_the_shell(rgt: Rgt, lab: BoxSpec) -> None:
    words = ["a b", "$HOME", "it's", '"', "*", "", "--json", "\\"]
    done = rgt.on("exec", "lab", "--", "printf", "[%s]", *words)
    assert (done.returncode, done.stdout) == (0, "".join(f"[{word}]" for word in words)), (
        done.stderr
    )
    assert rgt.on("exec", "lab", "--", "echo $((6 * 7)) | tr 4 5").stdout == "52\n"


def test_bytes_and_the_exit_status_go_through(rgt: Rgt, lab: BoxSpec) -> None:
    given = bytes(range(256)) * 40_000
    done = piped(rgt, "exec", "lab", "--", "tee /dev/stderr; exit 7", given=given)
    assert done.returncode == 7
    assert done.stdout == given
    assert done.stderr == given


@pytest.mark.parametrize(
    ("line", "status"), [("exit 255", 255), ("exit 3", 3), ("kill -9 $$", 137)]
)
def test_a_status_of_its_own_is_no_status_of_ours(
    rgt: Rgt, lab: BoxSpec, line: str, status: int
) -> None:
    done = rgt.on("exec", "lab", "--", line)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_line_that_is_lost_is_3_and_says_so(rgt: Rgt, lab: BoxSpec, tmp_path: Path) -> None:
    line = f"echo so far; until [ -e {tmp_path}/came ]; do sleep 0.1; done; kill -9 $PPID; sleep 60"
    process = rgt.start("exec", "lab", "--", line)
    assert process.stdout is not None
    assert process.stdout.readline() == b"so far\n"
    (tmp_path / "came").touch()
    rest, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest) == (3, b""), said
    assert b"unknown whether the command still runs there" in said
    rgt.describe([msgspec.structs.replace(lab, port=1)])
    gone = rgt.on("exec", "lab", "--", "true")
    assert gone.returncode == 3 and "refused the connection" in gone.stderr
    assert "still runs there" not in gone.stderr


def test_a_box_without_python_will_do(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(lab, python="/nowhere/python")])
    assert rgt.on("exec", "lab", "--", "echo it").stdout == "it\n"


def test_a_reader_that_goes_away_ends_it(rgt: Rgt, lab: BoxSpec, tmp_path: Path) -> None:
    entry = rgt.command("exec", "--fleet", str(rgt.fleet), "lab", "--", "yes")
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            entry, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=rgt.folder,
            env=rgt.environment(),
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.wait(PATIENCE) == 1
    assert b"Traceback" not in (tmp_path / "errors").read_bytes()


def test_ctrl_c_ends_it(rgt: Rgt, lab: BoxSpec, tmp_path: Path) -> None:
    """An sshd hands signals on only where it has given up its privileges: for root it hangs up."""
    process = rgt.start(
        "exec", "lab", "--", f"trap 'exit 0' INT; echo $$ > {tmp_path}/pid; echo ready; exec cat",
        stdin=subprocess.PIPE,  # open for as long as it runs, or cat would end by itself
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130


def test_without_a_command_nothing_is_run(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("exec", "lab")
    assert done.returncode == 2 and "after --" in done.stderr


def at_a_terminal(rgt: Rgt, *words: str) -> PseudoTerminal:
    """Run `rgt` at a terminal of its own."""
    command = rgt.command(words[0], "--fleet", str(rgt.fleet), *words[1:])
    return PseudoTerminal(command, cwd=rgt.folder, env={**rgt.environment(), "TERM": "dumb"})


def test_ssh_is_a_shell_by_the_same_way(rgt: Rgt, lab: BoxSpec) -> None:
    with at_a_terminal(rgt, "ssh", "lab") as shell:
        shell.type('echo m""arked $((40+2)); exit 9\n')
        shell.until("marked 42")
        assert shell.ended() == 9


def test_ssh_runs_a_line_in_a_terminal(rgt: Rgt, lab: BoxSpec) -> None:
    with at_a_terminal(rgt, "ssh", "lab", "--", "test -t 0", "&&", "echo") as shell:
        assert shell.ended() != 0  # three words are three words: no && of a shell
    with at_a_terminal(rgt, "ssh", "lab", "--", 'test -t 0 && echo at a ter""minal') as shell:
        shell.until("at a terminal")
        assert shell.ended() == 0


def test_ssh_is_held_to_the_key_that_rgt_has_verified(
    rgt: Rgt, lab: BoxSpec, tmp_path: Path
) -> None:
    """Whoever answers between the two connections with another key gets no login."""
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    keygen(tmp_path / "other")
    other = (tmp_path / "other.pub").read_text()
    real = subprocess.run(
        ["which", "ssh"], capture_output=True, text=True, check=True
    ).stdout.strip()
    # What rgt tells ssh is kept; with another verified key the real ssh must refuse this very server.
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n'
        f'case "$1" in -G|-V) exec {real} "$@";; esac\n'
        f'printf "rgt-verified {other.strip()}\\n" > "$HOME/.local/state/rgt/verified-hosts/lab"\n'
        f'exec {real} -o BatchMode=yes "$@" true\n'
    )
    program.chmod(0o755)
    rgt.env["PATH"] = f"{program.parent}:{os.environ['PATH']}"
    done = rgt.on("ssh", "lab")
    assert done.returncode == 255
    assert "verification failed" in done.stderr
    words = (tmp_path / "words").read_text().splitlines()
    assert "StrictHostKeyChecking=yes" in words and words[-1] == f"{lab.user}@127.0.0.1"


def test_a_box_that_cannot_be_reached_is_said_before_ssh_runs(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    rgt.describe([msgspec.structs.replace(lab, port=1)])
    done = rgt.on("ssh", "lab")
    assert done.returncode == 3 and "refused the connection" in done.stderr
    stranger = tmp = rgt.folder / "known"
    stranger.write_text(
        f"[127.0.0.1]:{real_sshd.port} {(real_sshd.folder / 'stranger.pub').read_text()}"
    )
    rgt.describe([msgspec.structs.replace(lab, known_hosts=str(tmp))])
    changed = rgt.on("ssh", "lab")
    assert changed.returncode == 3 and "HOST KEY HAS CHANGED" in changed.stderr
