"""What a screen pulls off a box comes over a real sshd, and counts once its checkpoints were looked at."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import Fleet, PullResult
from rgt_tui.fleet.pulls.pull_stream import PullFailed
from rgt_tui.fleet.pulls.pulling import PullReport, at_any_price, build_pull_result
from rgt_tui.profiles import TransferCost
from rgt_tui.transfer import FileProblem, FolderRow, Verification
from rgt_tui.transfer.copying import PullProgress, RefusedFile
from tests.contract.ssh.conftest import RealSshd


def weights(path: Path, *, missing: int = 0) -> None:
    """Write a file of safetensors, or one that ends too early."""
    head = json.dumps({"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(64 - missing))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "results"
    folder.mkdir()
    weights(folder / "model.safetensors")
    (folder / "notes.txt").write_text("lr 0.1")
    return folder


async def bring(
    box: RealSshd,
    results: Path,
    seen: list[PullProgress],
    plans: list[str],
    copies: Path | None = None,
) -> PullResult:
    home = results.parent
    fleet = Fleet([box.spec], audit=home / "audit.jsonl", copies=copies or home / "copies")
    return await fleet.pull_directories(
        box.spec.name, (str(results),), seen.append, plans.append, at_any_price
    )


async def test_what_is_pulled_is_verified_and_says_so(real_sshd: RealSshd, results: Path) -> None:
    seen: list[PullProgress] = []
    plans: list[str] = []
    end = await bring(real_sshd, results, seen, plans)
    copies = results.parent / "copies" / real_sshd.spec.name
    assert end.whole
    assert end.text.startswith("2 files, ")
    assert end.text.endswith(f" verified in {copies}, 1 checkpoint complete")
    here = copies / str(results).lstrip("/")
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {
        path.name: path.read_bytes() for path in results.iterdir()
    }
    assert "2 of 2 files" in plans[0]
    phases = [look.phase for look in seen]
    assert {"connecting", "pulling", "verifying"} <= set(phases)
    assert phases[-1] == "verifying"
    again = await bring(real_sshd, results, [], [])
    assert again.whole
    assert "2 already here" in again.text


def test_every_part_that_is_not_whole_is_counted_once() -> None:
    missing = FolderRow(
        path="/w",
        local="/c/w",
        fingerprint="f",
        files=5,
        bytes=5,
        missing=(("/w/a", "it changed"), ("/w/b", "is refused")),
        at=1.0,
    )
    report = PullReport(
        box="lab", destination="/c", dry_run=False, roots=("/w",), files=5, bytes=5, same=0, landed=3, landed_bytes=3,
        refused=(RefusedFile("/w/b", "is refused"),), uncounted=4, folders=(missing,),
    )  # fmt: skip
    clean = Verification(ok=True, directory="/c", files=5, bytes=5)
    found = msgspec.structs.replace(clean, errors=(FileProblem(path="w/c.pt", reason="truncated"),))
    end = build_pull_result(report, found, Path("c"))
    assert not end.whole
    assert end.text.startswith(
        "incomplete in c, 7 reasons: /w/b: is refused; /w/a: it changed; w/c.pt: truncated; and 4 more"
    )
    calm = msgspec.structs.replace(report, refused=(), uncounted=0, folders=())
    assert build_pull_result(calm, clean, Path("c")).whole


async def test_a_checkpoint_that_does_not_load_is_named(real_sshd: RealSshd, results: Path) -> None:
    weights(results / "cut.safetensors", missing=8)
    end = await bring(real_sshd, results, [], [])
    assert not end.whole
    assert "cut.safetensors" in end.text
    assert "model.safetensors" not in end.text


async def test_a_copy_that_was_changed_here_is_fetched_again(
    real_sshd: RealSshd, results: Path
) -> None:
    await bring(real_sshd, results, [], [])
    copy = results.parent / "copies" / real_sshd.spec.name / str(results).lstrip("/") / "notes.txt"
    copy.write_text("lr 0.2")
    end = await bring(real_sshd, results, [], [])
    assert end.whole
    assert copy.read_text() == "lr 0.1"


async def test_nothing_comes_before_its_price_is_agreed_to(
    real_sshd: RealSshd, results: Path
) -> None:
    home, asked = results.parent, list[TransferCost]()
    fleet = Fleet([real_sshd.spec], audit=home / "audit.jsonl", copies=home / "copies")

    async def refuse(price: TransferCost) -> bool:
        asked.append(price)
        return False

    def pull() -> Coroutine[Any, Any, PullResult]:
        return fleet.pull_directories(
            real_sshd.spec.name, (str(results),), lambda look: None, lambda plan: None, refuse
        )

    with pytest.raises(
        PullFailed, match=r"nothing was fetched: you did not agree to 1\d\d B, price unknown"
    ):
        await pull()
    assert not [path for path in (home / "copies").rglob("*") if path.is_file()]
    (price,) = asked
    assert price.bytes == sum(path.stat().st_size for path in results.iterdir())
    assert (await bring(real_sshd, results, [], [])).whole
    assert (await pull()).whole, "nothing is asked where nothing is to be fetched"
    assert len(asked) == 1
    free = msgspec.structs.replace(real_sshd.spec, profile="runpod")
    fleet = Fleet([free], audit=home / "audit.jsonl", copies=home / "more")
    assert (await pull()).whole, "nothing is asked where the traffic is free"
    assert len(asked) == 1


async def test_stopped_it_keeps_what_came_and_the_next_goes_on(
    real_sshd: RealSshd, results: Path
) -> None:
    begun = asyncio.Event()
    home = results.parent
    fleet = Fleet([real_sshd.spec], audit=home / "audit.jsonl", copies=home / "copies")
    pulling = asyncio.create_task(
        fleet.pull_directories(
            real_sshd.spec.name,
            (str(results),),
            lambda look: begun.set(),
            lambda plan: None,
            at_any_price,
        )
    )
    await begun.wait()
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    assert (await bring(real_sshd, results, [], [])).whole
