"""What a person meets first: an odd terminal, streams that are closed or full, a pip install of the real wheel."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rgt_tui.demo import RECORDING
from tests.free_ports import free_port
from tests.pseudo_terminal import PseudoTerminal
from tests.system.tree import ROOT

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


def in_a_terminal(words: list[str], leave_at: str | None = None, **more: str) -> tuple[int, str]:
    """Run rgt in a terminal of its own; return its exit status and everything that it wrote.

    As soon as it has written `leave_at`, ctrl+q is pressed.
    """
    with PseudoTerminal([*RGT, *words], env={**os.environ, **more}) as person:
        if leave_at is not None:
            person.until(leave_at)
            person.type("\x11")
        return person.ended(), person.text


@pytest.mark.parametrize("words", [["--fleet", "FLEET"], ["demo"]])
@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_dumb_terminal_gets_a_line_instead_of_a_screen(
    fleet: Path, words: list[str], term: str
) -> None:
    words = [str(fleet) if word == "FLEET" else word for word in words]
    code, said = in_a_terminal(words, TERM=term, HOME=str(fleet.parent), NO_COLOR="1")
    assert code == 2
    assert f"TERM={term}" in said
    assert "\x1b" not in said


def test_windows_gets_one_line() -> None:
    code = "import sys; sys.platform = 'win32'; from rgt_tui.cli.entry import main; sys.exit(main(['status']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "WSL" in done.stderr


def shell(script: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script, "sh", *RGT, *words],
        env=environment(home), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("command", "code"), [("status", 3), ("patrol", 2)])
def test_a_closed_standard_output_changes_no_exit_status(
    fleet: Path, command: str, code: int
) -> None:
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


@pytest.fixture
def without_torch(tmp_path: Path) -> str:
    """A PYTHONPATH with which an interpreter sees everything but torch."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
    )
    return str(tmp_path)


def test_without_torch_the_demo_plays_its_recording_and_says_what_the_real_one_needs(
    tmp_path: Path, without_torch: str
) -> None:
    code, said = in_a_terminal(
        ["demo"], leave_at="vast-demo",
        TERM="xterm-256color", HOME=str(tmp_path), PYTHONPATH=without_torch, COLUMNS="120", LINES="30",
    )  # fmt: skip
    assert code == 0, said[-2000:]
    assert "REPLAY of a recorded run" in said
    assert "pip install torch" in said
    assert "that was a REPLAY: torch is missing from" in said.replace("\r\n", " ")


def test_the_shipped_recording_is_small_and_tells_the_three_stories() -> None:
    assert RECORDING.stat().st_size <= 300_000
    done = subprocess.run(
        [*RGT, "replay", str(RECORDING), "--json"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    boxes = {line["box"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert set(boxes) == {"autodl-demo", "runpod-demo", "vast-demo"}
    assert {run["state"] for run in boxes["autodl-demo"]["runs"]} == {"done"}
    assert sum(run["resumes"] for run in boxes["runpod-demo"]["runs"]) == 1
    assert "inodes" in boxes["vast-demo"]["reason"]


def test_the_shipped_recording_names_no_directory_of_the_machine_that_made_it() -> None:
    text = gzip.decompress(RECORDING.read_bytes())
    tops = b"opt root tmp/rgt-demo workspace runpod-volume mnt proc usr dev etc sys var run bin lib home".split()
    paths = set(re.findall(rb'(?<=[" =]/)[a-z][^" ]*', text))
    # The agent cuts long command lines, also in the middle of a name.
    assert {
        p
        for p in paths
        if not any(p.startswith(top) or top.startswith(p.strip(b"\\")) for top in tops)
    } == set()
    assert not [name for name in (b".pyenv", b".venv", b"site-packages") if name in text]


CHROOT = """
set -e
mount --make-rprivate /
root=$1 clone=$2; shift 2
for top in /*; do
  if [ -L "$top" ]; then ln -s "$(readlink "$top")" "$root$top"
  elif [ "$top" = /tmp ]; then mkdir -m 1777 "$root/tmp"
  elif [ -d "$top" ]; then mkdir "$root$top"; mount --rbind "$top" "$root$top"
  fi
done
# /tmp is not taken along, since the new root lies there; a clone that lies there, too, is.
[ -e "$root$clone" ] || { mkdir -p "$root$clone"; mount --rbind "$clone" "$root$clone"; }
exec chroot "$root" "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter a chroot")
def test_a_root_that_is_no_mount_point_gets_its_own_word(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    code = "from rgt_tui.demo import sandboxes; sandboxes.check_sandboxes()"
    enter = ["unshare", "--mount", "bash", "-c", CHROOT, "sh", str(tmp_path / "root"), str(ROOT)]
    done = subprocess.run(
        [*enter, sys.executable, "-c", code],
        cwd="/", env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "the root directory is not a mount point" in done.stderr, done.stderr
    assert "neither root" not in done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel that pip has made; the libraries are this one's."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [
        *pip,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    (wheel,) = folder.glob("*.whl")
    python = folder / "env/bin/python"
    site = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
    )  # fmt: skip
    subprocess.run(
        [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)],
        check=True,
    )
    # All that this environment has, but for the project itself, which it finds in the source tree.
    libraries = folder / "libraries"
    libraries.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if (
            not path.name.startswith(("rgt_tui", "_rgt_tui", "__editable__", "_editable"))
            and path.suffix != ".pth"
        ):
            (libraries / path.name).symlink_to(path)
    (site / "libraries.pth").write_text(f"{libraries}\n")
    return folder / "env/bin"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rgt", "--version"], "rgt "),
        (["python", "-m", "rgt_tui", "--version"], "rgt "),
        (["python", "-c", "import rgt_train; print(rgt_train.Run)"], "rgt_train.run"),
        (["python", "-m", "rgt_train", "--help"], "usage: "),
        (["rgt", "agent", "build", "--out", "agent.pyz"], "sha256"),
        (["rgt", "scalars", "FIXTURE"], "loss"),
    ],
    ids=lambda item: " ".join(item[:3]) if isinstance(item, list) else "",
)
def test_what_pip_installs_works_away_from_the_source_tree(
    installed: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n')
    command = [
        str(installed / words[0]),
        *(str(tmp_path) if word == "FIXTURE" else word for word in words[1:]),
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
