"""The mirror in an object store: a real S3 protocol, spoken by a server on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.train import frameworks
from tests.process.train.harness import ENV, TINY, assert_same, final_state, wipe
from tests.process.train.test_mirror import publish

SERVER = """
import boto3, sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket="box")
print(url, flush=True)
sys.stdin.read()
"""
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
URL = "s3://box/runs/a"


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    python = frameworks.require()
    probe = "import importlib.util as u; raise SystemExit(not (u.find_spec('s3fs') and u.find_spec('moto')))"
    if subprocess.run([str(python), "-c", probe], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs s3fs and moto: make frameworks")
    server = subprocess.Popen(
        [str(python), "-c", SERVER],
        env={**ENV, **KEYS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    url = server.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:"), "the server did not start"
    yield {**ENV, **KEYS, "AWS_ENDPOINT_URL": url}
    server.stdin.close()
    server.kill()
    server.wait()
    server.stdout.close()


def command(out: Path, **values: object) -> list[str]:
    pairs = [
        part for key, value in {**TINY, **values}.items() for part in ("--set", f"{key}={value}")
    ]
    return [str(frameworks.PYTHON), "-m", "rgt_train", "--out", str(out), *pairs]


def train(s3: dict[str, str], out: Path, **values: object) -> str:
    words = command(out, **values)[1:]
    done = frameworks.warm().run(words, cwd=out.parent, env=s3, timeout=frameworks.TIMEOUT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_wiped_disk_comes_back_from_s3(s3: dict[str, str], tmp_path: Path) -> None:
    plain, out = tmp_path / "plain", tmp_path / "run"
    train(s3, plain)
    first = subprocess.Popen(
        command(out, mirror=URL, pace_ms=150),
        env=s3,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert first.stdout is not None
    seen = []
    for line in first.stdout:
        seen.append(line)
        if re.match("mirrored step-000000[4-7]", line):
            first.send_signal(signal.SIGKILL)
            break
    first.communicate()
    assert first.returncode == -signal.SIGKILL, "".join(seen)
    assert any(line.startswith("mirrored best-00000040-a1 → s3://box/runs/a") for line in seen), (
        seen
    )
    wipe(out)
    text = train(s3, out, mirror=URL)
    assert re.search("^fetched step-000000[4-7]", text, re.M)
    assert "fetched best-00000040-a1 from the mirror s3://box/runs/a" in text
    for left, right in zip(final_state(out, 80), final_state(plain, 80), strict=True):
        left.pop("progress", None)
        right.pop("progress", None)
        left.pop("settings", None)
        right.pop("settings", None)
        assert_same(left, right)
    assert json.loads((out / "result.json").read_text()) == json.loads(
        (plain / "result.json").read_text()
    )


BY_HAND = """
import sys
from pathlib import Path
from rgt_train.checkpoint import manifest
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.checkpoint import mirror_worker as worker
from rgt_train.checkpoint.mirror_places import open_place
from rgt_train.checkpoint.mirror_places import MANIFEST, verify_copy, fetch_directory
from rgt_train.checkpoint.store import KeepPolicy

place = open_place("s3://box/by-hand")
sources = [Path(path) for path in sys.argv[1:]]
for source in sources:
    worker.copy_and_verify(place, str(source), source.name, KeepPolicy(2))
names = [source.name for source in sources]
assert sorted(place.list_names()) == names[-2:], place.list_names()
newest = names[-1]
fetch_directory(place, newest, "back")
assert Path("back/a").read_bytes() == (sources[-1] / "a").read_bytes()
place._fs.pipe_file(f"{place._root}/{newest}/a", b"x" * 40_000_000)
try:
    verify_copy(place, newest, manifest.read_manifest(sources[-1])["files"])
except CheckpointDamaged as damage:
    print(damage)
place._fs.rm(f"{place._root}/{newest}/{MANIFEST}")
assert newest not in place.list_names(), "without its manifest it does not count"
worker.copy_and_verify(place, str(sources[-1]), newest, KeepPolicy(2))
assert newest in place.list_names()
place._fs.pipe_file(f"{place._root}/step-00000009-a1/a", b"half")
place._fs.pipe_file(f"{place._root}/notes/a", b"mine")
assert place.read_note() == b""
place.write_note(b"owner")
assert place.read_note() == b"owner"
place.remove_partial()
assert not place._fs.exists(f"{place._root}/step-00000009-a1/a")
assert place._fs.exists(f"{place._root}/notes/a") and sorted(place.list_names()) == names[-2:]
open_place("s3://box/nothing-yet").remove_partial()
"""


def test_bytes_are_read_back_and_half_copies_do_not_count(
    s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*KEYS, "AWS_ENDPOINT_URL"):
        monkeypatch.setitem(ENV, name, s3[name])
    sources = [publish(tmp_path / "run", step, size=40_000_000) for step in (1, 2, 3)]
    done = frameworks.run(BY_HAND, tmp_path, *map(str, sources))
    assert "a reads back differently (40000000 of 40000000 bytes)" in done.stdout


def test_a_store_that_does_not_answer_is_told(s3: dict[str, str], tmp_path: Path) -> None:
    dead = {**s3, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    done = subprocess.run(
        command(tmp_path / "run", mirror=URL), env=dead, capture_output=True, text=True, timeout=frameworks.TIMEOUT,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"has no checkpoint, and the mirror {URL} does not answer" in done.stderr
    assert "test" not in done.stderr.replace("pytest", "").replace("test_a_store", ""), (
        "no key in a message"
    )
    assert os.listdir(tmp_path / "run")
