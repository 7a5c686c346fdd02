"""The demo cannot run: it says why and what to do, and exits with 2."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.demo.demo_process import RGT, demo, leftovers


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with demo(tmp_path, "--headless", "--for", "5", "--port-base", str(port)) as running:
            code, _ = running.finish(120)
    assert code == 2
    assert f"127.0.0.1:{port}" in running.progress[-1]
    assert "--port-base" in running.progress[-1]
    assert leftovers(tmp_path) == []


def test_a_full_temporary_disk_is_named(tmp_path: Path) -> None:
    """On a real tmpfs that is really full, in a mount namespace of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = (
        'mount -t tmpfs -o size=1m tmpfs "$0" && '
        '{ head -c 2m /dev/zero > "$0/full" || true; } 2>/dev/null; TMPDIR="$0" exec "$@"'
    )
    argv = [
        "unshare",
        *user,
        "--mount",
        "sh",
        "-c",
        script,
        str(tmp_path),
        *RGT,
        "demo",
        "--headless",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "temporary disk is full" in done.stderr
    assert "TMPDIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_torch_is_named(tmp_path: Path) -> None:
    """An interpreter that sees everything but torch."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
    )
    env = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with demo(tmp_path / "tmp", "--headless", "--for", "5", env=env) as running:
        code, _ = running.finish(120)
    assert code == 2
    assert "torch is missing" in running.progress[-1]
    assert "make setup" in running.progress[-1]


@pytest.mark.parametrize(
    "bad", [["--for", "x"], ["--for", "-1"], ["--port-base", "80"], ["--until", "never"]]
)
def test_a_bad_option_is_a_usage_error(bad: list[str]) -> None:
    done = subprocess.run(
        [*RGT, "demo", *bad], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert bad[0] in done.stderr


def test_without_a_terminal_the_dashboard_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rgt_tui.cli.entry", "demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
