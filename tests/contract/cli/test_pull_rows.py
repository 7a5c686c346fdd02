"""Pulling rows of the list of results from a real sshd: exactly the files that a row counts, never rgt's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import ResultsRequest, connected_agent, request_results
from rgt_tui.fleet.pulls import pulling
from rgt_tui.fleet.pulls.pull_stream import PullRequest
from rgt_tui.fleet.pulls.pulling import PullReport
from rgt_tui.model import BoxResults, BoxSpec
from rgt_tui.transfer.ledger import prove_copies
from tests.contract.ssh.conftest import fresh_sshd

OLD = 10**18


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(OLD, OLD))
    return path


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoxSpec]:
    """A box all of whose files lie in the home directory, where rgt has its agent and its state."""
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "laptop"))
    (tmp_path / "sshd").mkdir()
    with fresh_sshd(tmp_path / "sshd") as running:
        (running.folder / "box").rmdir()
        (running.folder / "box").symlink_to("home")
        yield running.spec


def home_of(spec: BoxSpec) -> Path:
    return Path(str(spec.identity)).parent / "home"


def listed(spec: BoxSpec, wanted: ResultsRequest) -> BoxResults:
    async def ask() -> BoxResults:
        async with connected_agent(spec) as (connection, deployed):
            return await request_results(connection, deployed, spec, wanted)

    return asyncio.run(ask())


def pulled(spec: BoxSpec, *paths: Path, to: Path, **options: Any) -> PullReport:
    request = PullRequest(paths=tuple(map(str, paths)), destination=to, **options)
    return asyncio.run(pulling.pull_box(spec, request))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def unproved(spec: BoxSpec, wanted: ResultsRequest) -> list[str]:
    """Return the rows that have no complete copy here."""
    groups = listed(spec, wanted).groups
    found = {proof.path: proof for proof in prove_copies(spec.name, "", groups)}
    return [
        group.path
        for group in groups
        if group.path not in found
        or found[group.path].errors
        or found[group.path].fingerprint != group.fingerprint
    ]


def test_a_row_of_loose_files_at_home_brings_just_those(at_home: BoxSpec, tmp_path: Path) -> None:
    home, out = home_of(at_home), tmp_path / "out"
    put(home / "notes.txt", "lr 0.1")
    put(home / "exp/outputs/model.pt")
    put(home / "exp/lib/python3.11/site-packages/torch/big.bin")
    wanted = ResultsRequest()
    (row,) = [group for group in listed(at_home, wanted).groups if group.path == str(home)]
    assert (row.files, row.owner) == (1, "")
    report = pulled(at_home, home, to=out, wanted=wanted)
    assert report.is_complete, report.incomplete
    assert files(out) == {f"{home}/notes.txt".lstrip("/")}
    assert unproved(at_home, wanted) == [str(home / "exp/outputs")]
    # Another row does not take the first one's proof away, nor does a file of it that is gone stay one.
    second = pulled(at_home, home / "exp/outputs", to=out, wanted=wanted)
    assert (second.is_complete, second.landed) == (True, 1)
    assert unproved(at_home, wanted) == []
    put(home / "more.txt")
    (home / "notes.txt").unlink()
    third = pulled(at_home, home, to=out, wanted=wanted)
    assert third.is_complete, third.incomplete
    assert unproved(at_home, wanted) == []


def test_a_whole_home_comes_without_rgts_own_files_and_its_rows_are_proved(
    at_home: BoxSpec, tmp_path: Path
) -> None:
    home, out = home_of(at_home), tmp_path / "out"
    put(home / "notes.txt")
    put(home / "exp/run/model.pt")
    put(home / "exp/run/lib/python3.11/site-packages/torch/big.bin")
    put(home / "exp/run/__pycache__/train.cpython-311.pyc")
    spec = msgspec.structs.replace(at_home, results=(str(home / "exp/run"),))
    report = pulled(spec, home, to=out)
    assert report.is_complete, report.incomplete
    came = files(out / str(home).lstrip("/"))
    assert "exp/run/__pycache__/train.cpython-311.pyc" in came, "it was named, so all of it comes"
    assert not [name for name in came if name.startswith(".cache/rgt")]
    assert unproved(spec, ResultsRequest(results=spec.results)) == []


def test_a_row_that_is_gone_is_named(at_home: BoxSpec, tmp_path: Path) -> None:
    put(home_of(at_home) / "notes.txt")
    nowhere = home_of(at_home) / "gone"
    report = pulled(at_home, nowhere, to=tmp_path / "out", wanted=ResultsRequest())
    assert [(row.path, row.reason) for row in report.incomplete] == [
        (str(nowhere), "no longer contains results: list them again")
    ]


def test_each_file_that_was_written_during_the_pull_is_named(
    at_home: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = home_of(at_home) / "run"
    put(run / "model.pt")
    put(run / "log.txt")
    look = pulling._request_results

    async def written_before(*given: Any) -> BoxResults:
        put(run / "log.txt", "longer")
        put(run / "new.pt")
        return await look(*given)

    monkeypatch.setattr(pulling, "_request_results", written_before)
    spec = msgspec.structs.replace(at_home, results=(str(run),))
    report = pulled(spec, to=tmp_path / "out")
    assert {Path(row.path).name for row in report.incomplete} == {"log.txt", "new.pt"}
    monkeypatch.setattr(pulling, "_request_results", look)
    assert pulled(spec, to=tmp_path / "out").is_complete
