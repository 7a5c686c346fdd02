"""Starts real dstack and SkyPilot servers from `.venv-services` on the loopback, in a temporary home."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
VENV = ROOT / ".venv-services"
PYTHON = VENV / "bin/python"
SEEDS = Path(__file__).parent / "seeds"
START_S = 180.0
DSTACK_TOKEN = "not-a-real-token"
USER_ID = "0a1b2c3d"


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def process(
    command: Sequence[object], env: dict[str, str], log: Path, ready: str
) -> Iterator[None]:
    """Run a server until the block ends, with all processes that it starts.

    Args:
        command: Its words.
        env: Its environment.
        log: File for its output.
        ready: Address that answers when the server has started.
    """
    with log.open("ab") as out:
        started = subprocess.Popen(
            [str(word) for word in command],
            env=env,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=log.parent,
        )
    try:
        deadline = time.monotonic() + START_S
        while not _answers(ready):
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{command[0]} did not start: {log.read_text(errors='replace')[-3000:]}"
                )
            time.sleep(0.2)
        yield
    finally:
        _end(started)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _end(started: subprocess.Popen[bytes]) -> None:
    """End a server and its workers: SkyPilot's stay when only the server is ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(started.pid, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and started.poll() is None:
            time.sleep(0.1)


def seed(script: str, env: dict[str, str]) -> None:
    """Run a script that puts rows into a server's database."""
    done = subprocess.run(
        [PYTHON, SEEDS / script], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{script} failed: {done.stderr.decode(errors='replace')[-3000:]}")


class Dstack:
    """A dstack server with its database; it processes nothing until `works` is true.

    Otherwise it would end instances in a state that does not fit, before anybody has read them.
    """

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.log = home / "dstack.log"
        self.env = {
            "HOME": str(home),
            "PATH": f"{VENV / 'bin'}:/usr/bin:/bin",
            "DSTACK_SERVER_DIR": str(home / "server"),
            "DSTACK_SERVER_ADMIN_TOKEN": DSTACK_TOKEN,
            "DSTACK_SERVER_CONFIG_DISABLED": "1",
        }

    @contextmanager
    def running(self, *, works: bool) -> Iterator[None]:
        """Run the server."""
        env = (
            self.env if works else {**self.env, "DSTACK_SERVER_BACKGROUND_PROCESSING_DISABLED": "1"}
        )
        words = [
            VENV / "bin/dstack",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "-y",
        ]
        with process(words, env, self.log, f"http://127.0.0.1:{self.port}/healthcheck"):
            yield


class SkyPilot:
    """A SkyPilot server, with a moto server in the place of AWS."""

    def __init__(self, home: Path) -> None:
        self.port, self.aws_port = free_port(), free_port()
        self.log = home / "skypilot.log"
        self.user = {"SKYPILOT_USER_ID": USER_ID, "SKYPILOT_USER": "alice"}
        self.env = {
            **self.user,
            "HOME": str(home),
            "USER": "alice",
            "PATH": f"{VENV / 'bin'}:/usr/bin:/bin",
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            # Its port also decides where its queue listens.
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(self.port),
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.aws_port}",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run both, with the clusters of `skypilot_rows`."""
        aws = [VENV / "bin/moto_server", "-H", "127.0.0.1", "-p", str(self.aws_port)]
        words = [
            PYTHON,
            "-u",
            "-m",
            "sky.server.server",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        with process(aws, self.env, self.log, f"http://127.0.0.1:{self.aws_port}/moto-api/"):
            seed("skypilot_rows.py", self.env)
            with process(words, self.env, self.log, f"http://127.0.0.1:{self.port}/api/health"):
                self._warm_up()
                yield

    def _warm_up(self) -> None:
        """Let its two kinds of workers start: their first request takes a minute or two on a busy machine."""
        base = f"http://127.0.0.1:{self.port}"
        for refresh in ("NONE", "FORCE"):
            fields = {
                "cluster_names": ["nobody"],
                "refresh": refresh,
                "all_users": False,
                "include_credentials": False,
                "env_vars": self.user,
            }
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{base}/status", json.dumps(fields).encode(), headers)
            try:
                with urllib.request.urlopen(request, timeout=START_S) as answer:
                    ident = answer.headers["X-Skypilot-Request-ID"]
                with urllib.request.urlopen(
                    f"{base}/api/get?request_id={ident}", timeout=2 * START_S
                ):
                    pass
            except urllib.error.HTTPError as error:
                raise RuntimeError(f"SkyPilot answered {error.read().decode()[-1500:]}") from None


def version(package: str) -> str:
    """Return the version of an installed package."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, check=True, timeout=60)
    return found.stdout.decode().strip()
