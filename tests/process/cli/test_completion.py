"""What a shell completes, asked of the real shells."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FLEET = '[boxes.lab-a]\nhost = "x"\n[boxes.lab-b]\nhost = "y"\n[boxes.other]\nhost = "z"\n'

BASH = """
eval "$(rgt completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
read -ra COMP_WORDS <<< "$1"
[[ $1 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
function_of=$(complete -p rgt | sed -E 's/.*-F ([^ ]+).*/\\1/')
"$function_of" rgt "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    rgt = tmp_path / "bin" / "rgt"
    rgt.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rgt_tui.cli.entry "$@"\n')
    rgt.chmod(0o755)
    (tmp_path / "rgt.toml").write_text(FLEET)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RGT_", "XDG_"))}
    return {**kept, "PATH": f"{rgt.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def bash(line: str, tmp_path: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", line],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(word.strip() for word in done.stdout.splitlines() if word.strip())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rgt st", ["status", "stop"]),
        ("rgt status ", ["lab-a", "lab-b", "other"]),
        ("rgt status lab", ["lab-a", "lab-b"]),
        ("rgt status lab-a o", ["other"]),
        ("rgt logs oth", ["other"]),
        ("rgt logs other ", []),
        ("rgt logs other --fol", ["--follow"]),
        ("rgt doctor --accept", ["--accept-new-host-key"]),
        ("rgt completion ", ["bash", "fish", "zsh"]),
        ("rgt add x y --profile run", ["runpod"]),
        ("rgt --fleet rgt.to", ["rgt.toml"]),
        ("rgt --fleet missing.toml status ", []),
    ],
)
def test_bash_completes(
    line: str, expected: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    found = bash(line, tmp_path, environment)
    positional = (
        [word for word in found if not word.startswith("-")]
        if not line.split()[-1].startswith("-")
        else found
    )
    assert positional == expected


def test_every_command_is_completed(tmp_path: Path, environment: dict[str, str]) -> None:
    from rgt_tui.cli import COMMANDS

    assert set(COMMANDS) <= set(bash("rgt ", tmp_path, environment))


@pytest.mark.parametrize(
    ("shell", "command"),
    [
        ("zsh", ["zsh", "-fc", 'autoload -U compinit; compinit -D; eval "$(rgt completion zsh)"; whence rgt']),
        ("fish", ["fish", "-N", "-c", "rgt completion fish | source; complete -C 'rgt stat'"]),
    ],
)  # fmt: skip
def test_the_other_shells_take_it(
    shell: str, command: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
