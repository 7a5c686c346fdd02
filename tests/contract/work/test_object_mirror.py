"""`rgt mirror BOX DIR s3://…` against a real sshd and a server that speaks S3, from the box and through the laptop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
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


def test_through_the_laptop_where_the_box_has_no_library(
    rgt: Rgt, box: BoxSpec, home: Path, results: Path, s3: dict[str, str]
) -> None:
    rgt.describe([msgspec.structs.replace(box, python=sys.executable)])
    words = ("mirror", "lab", "~/results", "s3://box/from-here")
    neither = rgt.on(*words)
    assert neither.returncode == 1, neither.stdout
    assert "neither a Python on the box nor rgt's own has s3fs" in neither.stderr
    box_only = rgt.on(*words, "--through", "box")
    assert box_only.returncode == 1 and "no Python on the box has s3fs" in box_only.stderr
    library = frameworks.PYTHON.parent.parent / "lib"
    (packages,) = library.glob("python3*/site-packages")
    rgt.env.update({name: s3[name] for name in (*KEYS, "AWS_ENDPOINT_URL")})
    rgt.env["PYTHONPATH"] = f"{packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    sent = rgt.on(*words, "--through", "laptop")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert "sent through this machine" in sent.stderr and "traffic: " in sent.stderr
    assert "2 verified (2 copied, 0 the same), 0 failed" in sent.stdout
    there = objects(s3)
    assert there["box/from-here/a/best.pt"] == "weights" * 1000
    assert not (home / ".aws").exists()
    again = rgt.on(*words, "--through", "laptop")
    assert again.returncode == 0 and "2 verified (0 copied, 2 the same)" in again.stdout


def test_a_store_that_does_not_answer_and_options_that_need_a_url(
    rgt: Rgt, box: BoxSpec, home: Path, results: Path, s3: dict[str, str]
) -> None:
    rgt.describe([msgspec.structs.replace(box, python=str(frameworks.PYTHON))])
    write_keys(home, {**s3, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    failed = rgt.on("mirror", "lab", "~/results", "s3://box/x")
    assert failed.returncode == 1 and "lab: s3://box/x: " in failed.stderr, failed.stderr
    assert "hunter2" not in failed.stderr
    wrong = rgt.on("mirror", "lab", "~/results", "~/x", "--dry-run")
    assert wrong.returncode == 2 and "--dry-run is for a URL" in wrong.stderr
