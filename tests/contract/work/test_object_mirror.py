"""`rgt mirror BOX DIR s3://…` against a real sshd and a server that speaks S3, from the box and through the laptop."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.cli.work import object_mirror
from rgt_tui.fleet import read_notes
from rgt_tui.model import BoxSpec
from rgt_tui.transfer import object_upload
from tests.contract.cli.conftest import Rgt
from tests.process.box.harness import until
from tests.process.train import frameworks
from tests.process.train.test_mirror_s3 import KEYS
from tests.process.train.test_mirror_s3 import s3 as s3

PLACE = """
import json, sys, fsspec
fs = fsspec.filesystem("s3")
verb, key, text = sys.argv[1:4]
if verb == "put": fs.pipe_file(key, text.encode())
print(json.dumps({name: fs.cat_file(name).decode("latin-1") for name in fs.find("box")}))
"""


@pytest.fixture
def results(home: Path) -> Iterator[Path]:
    folder = home / "results"
    (folder / "a").mkdir(parents=True)
    (folder / "a/best.pt").write_bytes(b"weights" * 1000)
    (folder / "log.txt").write_text("step 1\n")
    yield folder
    shutil.rmtree(folder)
    shutil.rmtree(home / ".aws", ignore_errors=True)


def objects(s3: dict[str, str], *put: str) -> dict[str, str]:
    """Return what the store has, after putting one object there."""
    words = ("put", *put) if put else ("list", "", "")
    command = [str(frameworks.PYTHON), "-c", PLACE, *words]
    done = subprocess.run(command, env=s3, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def write_keys(home: Path, s3: dict[str, str]) -> None:
    """Give a home the keys, as `aws configure` does."""
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws/config").write_text(
        f"[default]\nregion = us-east-1\nendpoint_url = {s3['AWS_ENDPOINT_URL']}\n"
        "aws_access_key_id = test\naws_secret_access_key = hunter2-secret\n"
    )


def test_the_box_sends_its_results_and_nothing_twice(
    rgt: Rgt, box: BoxSpec, home: Path, results: Path, s3: dict[str, str]
) -> None:
    rgt.describe([msgspec.structs.replace(box, python=str(frameworks.PYTHON))])
    words = ("mirror", "lab", "~/results", "s3://box/from-box")
    write_keys(home, s3)
    planned = rgt.on(*words, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "to send a/best.pt" in planned.stdout
    assert not any("from-box" in name for name in objects(s3))
    sent = rgt.on(*words)
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert "2 verified (2 copied, 0 the same), 0 failed" in sent.stdout
    assert "sent by the box itself" in sent.stderr and "traffic: " in sent.stderr
    there = objects(s3)
    assert there["box/from-box/a/best.pt"] == "weights" * 1000
    assert "hunter2" not in sent.stdout + sent.stderr
    writing = rgt.start(
        "exec", "lab", "--", "(echo step 2; cat) >> ~/results/log.txt", stdin=subprocess.PIPE
    )
    until(lambda: "step 2" in (results / "log.txt").read_text())
    refused = rgt.on(*words, "--json")
    assert refused.returncode == 1, refused.stdout
    rows = [json.loads(line) for line in refused.stdout.splitlines()]
    assert {row["box"] for row in rows} == {"lab"}
    (failed,) = (row for row in rows if row.get("status") == "failed")
    assert failed["path"] == "log.txt" and "open for writing" in failed["error"]
    growing = rgt.on(*words, "--growing")
    assert growing.returncode == 0, growing.stdout + growing.stderr
    assert "2 verified (1 copied, 1 the same)" in growing.stdout
    writing.communicate()
    assert objects(s3)["box/from-box/log.txt"] == "step 1\nstep 2\n"
    # Neither rgt's nor the beginning of the file: it stays.
    objects(s3, "box/from-box/log.txt", "of somebody else")
    kept = rgt.on(*words)
    assert kept.returncode == 1 and "another object has this name" in kept.stdout
    there = objects(s3)
    assert there["box/from-box/log.txt"] == "of somebody else"
    # Without rgt's record, what is there is read back, not sent.
    again = rgt.on("mirror", "lab", "~/results/a", "s3://box/from-box/a")
    assert again.returncode == 0 and "1 verified (0 copied, 1 the same)" in again.stdout
    assert "box/from-box/a/.rgt-mirror.json" in objects(s3), "the next run would read it back, too"
    one = rgt.on("mirror", "lab", "~/results/a/best.pt", "s3://box/one-file")
    assert one.returncode == 0, one.stdout + one.stderr
    assert objects(s3)["box/one-file/best.pt"] == "weights" * 1000


@pytest.mark.parametrize("through", ["box", "laptop"])
def test_progress_on_a_terminal_only(
    rgt: Rgt, box: BoxSpec, home: Path, results: Path, s3: dict[str, str], through: str
) -> None:
    rgt.describe([msgspec.structs.replace(box, python=str(frameworks.PYTHON))])
    write_keys(home, s3)
    send_from_here(rgt, s3)
    words = ("mirror", "lab", "~/results", f"s3://box/shown-{through}", "--through", through)
    status, shown = on_terminal(rgt, *words)
    assert status == 0, shown
    assert re.search(r"sending +100% +7\.0 kB of 7\.0 kB +2 of 2 files", shown), shown
    assert ("pulled to ./pulled/lab first" in shown) == (through == "laptop")
    status, shown = on_terminal(rgt, *words[:3], f"s3://box/json-{through}", *words[4:], "--json")
    assert status == 0 and "traffic: " in shown and "sending" not in shown
    silent = rgt.on(*words[:3], f"s3://box/silent-{through}", *words[4:])
    assert silent.returncode == 0 and "sending" not in silent.stdout + silent.stderr
    (mirror, *_) = read_notes(rgt.environment())
    assert (mirror.kind, mirror.whole, mirror.text) == ("mirror", True, "2 files verified")


def on_terminal(rgt: Rgt, *words: str) -> tuple[int, str]:
    """Run a command whose messages go to a terminal; return its status and what the terminal got."""
    terminal, side = pty.openpty()
    running = subprocess.Popen(
        rgt.command(words[0], "--fleet", str(rgt.fleet), *words[1:]),
        cwd=rgt.folder,
        env=rgt.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=side,
    )
    os.close(side)
    shown = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while piece := os.read(terminal, 4096):
            shown += piece
    os.close(terminal)
    return running.wait(), shown.decode()


def send_from_here(rgt: Rgt, s3: dict[str, str]) -> None:
    """Give rgt's own Python the store's package and keys."""
    library = frameworks.PYTHON.parent.parent / "lib"
    (packages,) = library.glob("python3*/site-packages")
    rgt.env.update({name: s3[name] for name in (*KEYS, "AWS_ENDPOINT_URL")})
    rgt.env["PYTHONPATH"] = f"{packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"


def test_through_the_laptop_where_the_box_has_no_library(
    rgt: Rgt, box: BoxSpec, home: Path, results: Path, s3: dict[str, str]
) -> None:
    rgt.describe([msgspec.structs.replace(box, python=sys.executable)])
    words = ("mirror", "lab", "~/results", "s3://box/from-here")
    neither = rgt.on(*words)
    assert neither.returncode == 1, neither.stdout
    assert "neither a Python on the box nor rgt's own has s3fs" in neither.stderr
    install = f"rgt exec lab -- {sys.executable} -m pip install s3fs"
    assert install in neither.stderr
    box_only = rgt.on(*words, "--through", "box")
    assert box_only.returncode == 1 and "no Python on the box has s3fs" in box_only.stderr
    assert install in box_only.stderr
    send_from_here(rgt, s3)
    sent = rgt.on(*words, "--through", "laptop")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert "sent through this machine" in sent.stderr and "traffic: " in sent.stderr
    assert "2 verified (2 copied, 0 the same), 0 failed" in sent.stdout
    there = objects(s3)
    assert there["box/from-here/a/best.pt"] == "weights" * 1000
    assert not (home / ".aws").exists()
    again = rgt.on(*words, "--through", "laptop")
    assert again.returncode == 0 and "2 verified (0 copied, 2 the same)" in again.stdout


def test_what_cannot_be_used_is_named_with_the_next_step(
    rgt: Rgt, box: BoxSpec, home: Path, results: Path, s3: dict[str, str]
) -> None:
    rgt.describe([msgspec.structs.replace(box, python=str(frameworks.PYTHON))])
    words = ("mirror", "lab", "~/results")
    for keys, url, needles in (
        ("", "s3://box/x", ("Unable to locate credentials", "keys are read from the box")),
        ("http://127.0.0.1:9", "s3://box/x", ("Could not connect", "the box does not reach")),
        (s3["AWS_ENDPOINT_URL"], "s3://nowhere/x", ("there is no bucket nowhere: create it",)),
        (s3["AWS_ENDPOINT_URL"], "s3://", ("it names no bucket",)),
        (s3["AWS_ENDPOINT_URL"], "s4://box/x", ("no Python with fsspec and its package for s4",)),
    ):
        if keys:
            write_keys(home, {**s3, "AWS_ENDPOINT_URL": keys})
        failed = rgt.on(*words, url, "--dry-run", timeout=240.0)
        assert failed.returncode == 1 and f"lab: {url}: " in failed.stderr, failed.stderr
        assert all(needle in failed.stderr for needle in needles), failed.stderr
        assert "hunter2" not in failed.stderr
    missing = rgt.on("mirror", "lab", "~/nothing", "s3://box/x")
    assert missing.returncode == 1 and "~/nothing: No such file" in missing.stderr
    wrong = rgt.on("mirror", "lab", "~/results", "~/x", "--dry-run")
    assert wrong.returncode == 2 and "--dry-run is for a URL" in wrong.stderr


LIST_UNFINISHED = """
import boto3, json, os
store = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
print(json.dumps([part["Key"] for part in store.list_multipart_uploads(Bucket="box").get("Uploads", [])]))
"""


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_upload_that_does_not_end_has_ended_when_the_command_goes_on(
    cancelled: bool,
) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", stubborn, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None and await child.stdout.readline() == b"\n"
    if cancelled:
        stopping = asyncio.create_task(object_mirror._stop_upload(child, 600.0))
        # One turn of the loop: the stop has begun to wait.
        await asyncio.sleep(0)
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopping
    else:
        await object_mirror._stop_upload(child, 0.01)
    assert child.returncode == -signal.SIGKILL


class SlowStore:
    """Forwards to a store; once it got some bytes, it forwards nothing until it is let go."""

    def __init__(self, url: str, enough: int) -> None:
        self._to = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._left = enough
        self.is_blocked, self.go_on = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while piece := source.recv(1 << 16):
                self._left -= len(piece)
                if self._left < 0:
                    self.is_blocked.set()
                    self.go_on.wait()
                target.sendall(piece)

    def close(self) -> None:
        self._listener.close()


def test_a_store_that_hangs_ends_at_the_time_limit(
    rgt: Rgt, box: BoxSpec, home: Path, results: Path, s3: dict[str, str]
) -> None:
    rgt.describe([msgspec.structs.replace(box, python=str(frameworks.PYTHON))])
    slow = SlowStore(s3["AWS_ENDPOINT_URL"], 100)
    write_keys(home, {**s3, "AWS_ENDPOINT_URL": slow.url})
    failed = rgt.on("mirror", "lab", "~/results", "s3://box/hangs", "--timeout", "3")
    slow.go_on.set()
    slow.close()
    assert failed.returncode == 1, failed.stdout
    assert "did not end within 3 s on the box: the same command continues" in failed.stderr


@pytest.mark.parametrize("end", ["its caller is gone", "SIGTERM"])
def test_a_stopped_upload_leaves_nothing_that_bills(
    s3: dict[str, str], tmp_path: Path, end: str
) -> None:
    """A store bills for the parts of an unfinished upload, and no listing of objects shows them."""
    data = os.urandom(40 << 20)
    (tmp_path / "best.pt").write_bytes(data)
    about, digest = (tmp_path / "best.pt").stat(), hashlib.sha256(data).hexdigest()
    row = {"path": "best.pt", "size": len(data), "sha256": digest, "mtime": about.st_mtime}
    slow = SlowStore(s3["AWS_ENDPOINT_URL"], 20 << 20)
    place = "s3://box/stopped"
    uploading = subprocess.Popen(
        [str(frameworks.PYTHON), object_upload.__file__, place, str(tmp_path), "send"],
        env={**s3, "AWS_ENDPOINT_URL": slow.url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert uploading.stdin is not None and uploading.stdout is not None
    uploading.stdin.write(json.dumps(row).encode() + b"\n")
    uploading.stdin.close()
    assert slow.is_blocked.wait(60.0)
    assert unfinished(s3) == ["stopped/best.pt"]
    if end == "SIGTERM":
        uploading.send_signal(signal.SIGTERM)
    else:
        uploading.stdout.close()
    slow.go_on.set()
    if end == "SIGTERM":
        assert b'"error": "stopped"' in uploading.stdout.read()
        uploading.stdout.close()
    uploading.wait(timeout=60.0)
    slow.close()
    assert unfinished(s3) == []
    assert "box/stopped/best.pt" not in objects(s3)


def unfinished(s3: dict[str, str]) -> list[str]:
    """Return the keys of unfinished uploads."""
    command = [str(frameworks.PYTHON), "-c", LIST_UNFINISHED]
    done = subprocess.run(command, env=s3, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found
