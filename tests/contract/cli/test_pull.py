"""``rgt pull`` against a real sshd: killed anywhere, files that change, full disks, cut connections."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import ResultsRequest, connected_agent, read_notes, request_results
from rgt_tui.fleet.pulls import pulling
from rgt_tui.fleet.pulls.box_pipe import BoxConnection
from rgt_tui.fleet.pulls.pull_stream import PullFailed, PullRequest
from rgt_tui.fleet.pulls.pulling import PullReport
from rgt_tui.model import BoxResults, BoxSpec
from rgt_tui.transfer import Ledger, LedgerError, ledger_path
from rgt_tui.transfer.copying import RANGE_BYTES, PullFetcher, pull_plan, remove_left_parts
from rgt_tui.transfer.copying.pull_plan import WHOLE_BYTES, part_path
from rgt_tui.transfer.ledger import prove_copies
from tests.contract.cli.conftest import Rgt, mounted_disk
from tests.contract.ssh.conftest import RealSshd, running_sshd

BIG = 2 * RANGE_BYTES + 12345
SMALL = 40


class Source:
    """Results on the box: two big files, many small ones, and what is no file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        block = random.Random(1).randbytes(1 << 20)
        for name in ("a.pt", "b.pt"):
            data = block * (BIG // len(block) + 1)
            (folder / name).write_bytes(name.encode() + data[: BIG - len(name)])
        for number in range(SMALL):
            path = folder / "logs" / str(number % 3) / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(block[: 1000 * number])
        (folder / os.fsdecode(b"caf\xe9")).write_bytes(b"no UTF-8")
        self.settled()

    def settled(self) -> None:
        """Let the files be older than one tick of the clock, as results are."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                os.utime(path, ns=(10**18, 10**18))

    def held(self, folder: Path | None = None) -> dict[str, bytes]:
        top = folder or self.folder
        return {
            str(path.relative_to(top)): path.read_bytes()
            for path in top.rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def copy(self, destination: Path) -> Path:
        return destination / str(self.folder).lstrip("/")


@pytest.fixture
def source(real_sshd: RealSshd) -> Iterator[Source]:
    found = Source(real_sshd.folder / "box" / "results")
    yield found
    shutil.rmtree(found.folder)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def pulled(spec: BoxSpec, *paths: Path | str, to: Path, **options: Any) -> PullReport:
    request = PullRequest(paths=tuple(map(str, paths)), destination=to, **options)
    return asyncio.run(pulling.pull_box(spec, request))


def test_a_pull_is_whole_and_the_next_one_takes_nothing(
    rgt: Rgt, lab: BoxSpec, source: Source
) -> None:
    os.symlink("/etc/passwd", source.folder / "link")
    first = rgt.on("pull", "lab", str(source.folder), "--json")
    assert first.returncode == 0, first.stderr
    *progress, end = map(json.loads, first.stdout.splitlines())
    assert (end["ok"], end["landed"], end["same"], end["refused"]) == (True, SMALL + 3, 0, [])
    assert [path for path, _ in end["links"]] == [f"{source.folder}/link"]
    assert {row["phase"] for row in progress} >= {"connecting", "listing", "pulling", "done"}
    copies = source.copy(rgt.folder / "pulled" / "lab")
    assert source.held(copies) == source.held()
    assert not (copies / "link").is_symlink()
    assert not (rgt.folder / "pulled/lab/.rgt-parts").exists()
    second = json.loads(rgt.on("pull", "lab", str(source.folder), "--json").stdout.splitlines()[-1])
    assert (second["landed"], second["same"]) == (0, SMALL + 3)
    now, before = read_notes(rgt.environment())
    assert (before.box, before.kind, before.to) == (
        "lab",
        "pull",
        str(rgt.folder / "pulled" / "lab"),
    )
    assert (
        before.whole
        and before.text.startswith(f"{SMALL + 3} files, ")
        and before.ended_at is not None
    )
    assert now.text == f"0 files, 0 B verified, {SMALL + 3} already here"


def test_a_directory_that_changed_meanwhile_is_incomplete_and_ends_with_1(
    rgt: Rgt, lab: BoxSpec, source: Source
) -> None:
    """What the box holds at the end is compared; until a pull brings just that, its exit status says so."""
    done = rgt.start("pull", "lab", str(source.folder / "logs"))
    number = 0
    while done.poll() is None:
        number += 1
        (source.folder / "logs/1" / f"new-{number}.txt").write_text(str(number))
        time.sleep(0.01)
    out, err = (text.decode() for text in done.communicate())
    assert done.returncode == 1, err
    assert re.search(
        rf"{source.folder}/logs/1: incomplete: new-\d+.txt: was written while it was pulled", out
    ), out
    assert read_notes(rgt.environment())[0].text.startswith("incomplete, ")
    again = rgt.on("pull", "lab", str(source.folder / "logs"))
    assert again.returncode == 0, again.stderr
    assert f"{source.folder}/logs/1: complete here" in again.stdout


def test_a_copy_that_the_box_did_not_confirm_is_incomplete(
    lab: BoxSpec,
    source: Source,
    tmp_path: Path,
    env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_answer(*_: object) -> BoxResults:
        raise TimeoutError

    monkeypatch.setattr(pulling, "_request_results", no_answer)
    report = pulled(lab, source.folder / "logs", to=tmp_path / "out")
    assert (report.landed, report.is_complete) == (SMALL, False)
    assert report.unconfirmed == "no answer within 300 s"
    mixed = pulled(lab, source.folder / "logs", "nosuch", to=tmp_path / "other")
    assert (mixed.landed, [row.path.endswith("/nosuch") for row in mixed.refused]) == (
        SMALL,
        [True],
    )


def swapped(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret)


def test_a_file_that_became_a_link_during_the_pull_brings_nothing_else_home(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    """Nor does a directory on its way; the links are the user's own, which a reader of logs may follow."""
    secret = tmp_path / "secret"
    (secret / "0").mkdir(parents=True)
    for path in (
        secret / "key",
        *(secret / "0" / f"{number}.txt" for number in range(0, SMALL, 3)),
    ):
        path.write_bytes(b"a private key")

    def swap(*_: object) -> None:
        for name in ("a.pt", "logs/1/1.txt"):
            swapped(source.folder / name, secret / "key")
        (source.folder / "logs/0").rename(tmp_path / "away")
        (source.folder / "logs/0").symlink_to(secret / "0")

    request = PullRequest(paths=(str(source.folder),), destination=tmp_path / "out")
    report = asyncio.run(pulling.pull_box(lab, request, on_plan=swap))
    held = source.held(source.copy(tmp_path / "out"))
    assert b"a private key" not in held.values()
    named = {Path(row.path).relative_to(source.folder): row.reason for row in report.refused}
    assert {Path("a.pt"), Path("logs/1/1.txt"), Path("logs/0/0.txt")} <= set(named)
    assert all("symbolic link" in reason for reason in named.values()), named
    assert not report.is_complete


def test_a_file_that_became_a_directory_between_pulls_keeps_its_copy_and_says_how_to_go_on(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    out = tmp_path / "my out"
    assert pulled(lab, source.folder, to=out).is_complete
    there, local = source.folder / "a.pt", source.copy(out) / "a.pt"
    good = local.read_bytes()
    there.unlink()
    (there / "sub").mkdir(parents=True)
    (there / "sub" / "small.txt").write_bytes(b"new")
    (there / "large.bin").write_bytes(good)
    report = pulled(lab, source.folder, to=out)
    reasons = {row.path: row.reason for row in report.refused}
    assert set(reasons) == {f"{there}/sub/small.txt", f"{there}/large.bin"}
    assert not report.is_complete
    assert local.read_bytes() == good
    for reason in reasons.values():
        assert "a directory on the box now" in reason
        command = reason.partition("`")[2].partition("`")[0]
    subprocess.run(["sh", "-c", command], check=True)
    again = pulled(lab, source.folder, to=out)
    assert again.is_complete, again
    assert (local / "sub" / "small.txt").read_bytes() == b"new"
    assert good in [path.read_bytes() for path in local.parent.iterdir() if path.is_file()]


def test_a_file_that_becomes_a_directory_during_the_pull_is_named_and_comes_with_the_next_one(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    def replace_by_directory(*_: object) -> None:
        for name in ("a.pt", "logs/1/1.txt"):
            (source.folder / name).unlink()
            (source.folder / name).mkdir()
            (source.folder / name / "inside").write_bytes(b"new")

    request = PullRequest(paths=(str(source.folder),), destination=tmp_path / "out")
    report = asyncio.run(pulling.pull_box(lab, request, on_plan=replace_by_directory))
    reasons = {Path(row.path).name: row.reason for row in report.refused}
    assert not report.is_complete
    for name in ("a.pt", "1.txt"):
        assert "now a directory" in reasons[name]
        assert "pull again" in reasons[name]
    again = pulled(lab, source.folder, to=tmp_path / "out")
    assert again.is_complete, again
    assert (source.copy(tmp_path / "out") / "a.pt" / "inside").read_bytes() == b"new"


def test_a_results_directory_that_is_a_link_comes_home_under_its_own_path(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    link = tmp_path / "latest"
    link.symlink_to(source.folder)
    for paths, spec in (((link,), lab), ((), msgspec.structs.replace(lab, results=(str(link),)))):
        out = tmp_path / f"out-{len(paths)}"
        report = pulled(spec, *paths, to=out)
        assert report.is_complete and set(report.roots) >= {str(source.folder)}
        assert source.held(source.copy(out)) == source.held()


def test_a_checkpoint_that_is_saved_again_by_rename_is_taken_as_it_is_now(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    """As every trainer saves ``latest.pt``; the file that was listed is no longer there."""

    def save(*_: object) -> None:
        for name in ("a.pt", "logs/1/1.txt"):
            new = tmp_path / "new"
            new.write_bytes(b"saved again " + (source.folder / name).read_bytes())
            new.rename(source.folder / name)
        source.settled()

    request = PullRequest(paths=(str(source.folder),), destination=tmp_path / "out")
    report = asyncio.run(pulling.pull_box(lab, request, on_plan=save))
    assert report.refused == ()
    assert source.held(source.copy(tmp_path / "out")) == source.held()


def test_what_killed_pulls_left_is_removed_an_hour_later_and_verified_never(
    rgt: Rgt, lab: BoxSpec, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = source.copy(rgt.folder / "pulled" / "lab")
    (copies / "logs").mkdir(parents=True)
    left = copies / "logs" / f".{'0' * 16}.rgt-part"
    left.write_bytes(b"half of it")
    assert rgt.on("pull", "lab", str(source.folder)).returncode == 0
    assert left.exists(), "another pull may be writing it"
    assert left.name not in rgt.on("verify", str(copies), "--json").stdout
    monkeypatch.setattr(pull_plan, "LEFT_S", -1.0)
    remove_left_parts(copies)
    assert not left.exists()


def test_a_dry_run_writes_nothing(rgt: Rgt, lab: BoxSpec, source: Source) -> None:
    done = rgt.on("pull", "lab", str(source.folder), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"{SMALL + 3} files would be fetched" in done.stdout
    assert not (rgt.folder / "pulled").exists()
    assert read_notes(rgt.environment()) == ()


def test_without_paths_the_results_are_what_has_an_owner(
    rgt: Rgt, lab: BoxSpec, source: Source
) -> None:
    nothing = rgt.on("pull", "lab")
    assert nothing.returncode == 1
    assert "name paths" in nothing.stderr
    rgt.describe([msgspec.structs.replace(lab, results=(f"{source.folder}/logs/*",))])
    done = rgt.on("pull", "lab")
    assert done.returncode == 1, "two big files next to them are nobody's"
    assert f"{source.folder}/logs/1: complete here" in done.stdout
    assert f"unclaimed: {source.folder}: 3 files, " in done.stderr
    done = rgt.on("pull", "lab", "--unclaimed", "1G")
    assert done.returncode == 0, done.stderr
    # In more directories than that one while another test's training runs on this machine.
    assert re.search(r" in \d+ director(y|ies): rgt pull lab PATH", done.stdout)
    assert len(list(source.copy(rgt.folder / "pulled/lab").rglob("*.txt"))) == SMALL


def test_the_name_of_a_run_is_taken_where_no_such_path_exists(
    rgt: Rgt, lab: BoxSpec, source: Source
) -> None:
    run = source.folder.parent / "gpt-small"
    shutil.copytree(source.folder / "logs", run)
    rgt.describe([msgspec.structs.replace(lab, runs=(str(run),))])
    done = rgt.on("pull", "lab", "gpt-small")
    assert done.returncode == 0, done.stderr
    assert f"gpt-small is no path there, but a run: {run}" in done.stderr
    copy = rgt.folder / "pulled/lab" / str(run).lstrip("/")
    assert len(list(copy.rglob("*.txt"))) == SMALL
    wrong = rgt.on("pull", "lab", "gpt-smol")
    assert wrong.returncode == 1
    assert "gpt-smol is no path there, and no run: there are gpt-small" in wrong.stderr
    mixed = rgt.on("pull", "lab", str(source.folder / "logs"), "gpt-smol")
    assert f"{source.folder}/logs/1: complete here" in mixed.stdout, mixed.stderr
    assert "gpt-smol: " in mixed.stdout + mixed.stderr
    shutil.rmtree(run)


def test_what_was_pulled_is_proven_until_the_box_or_the_copy_changes(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    """The ledger's fingerprint is the very one that the agent reckons, so the gate can compare them."""
    spec = msgspec.structs.replace(lab, results=(f"{source.folder}/logs",))
    logs, out = f"{source.folder}/logs", tmp_path / "out"
    report = pulled(spec, source.folder, to=out)
    assert {folder.path: folder.missing for folder in report.folders} == {
        str(source.folder): (),
        logs: (),
    }
    groups = {group.path: group for group in asked(spec).groups}
    (proof,) = prove_copies("lab", "", [groups[logs]])
    assert (proof.fingerprint, proof.files, proof.errors) == (groups[logs].fingerprint, SMALL, ())
    assert proof.where == str(out) + logs
    (source.folder / "logs/1/new.txt").write_bytes(b"written after the pull")
    changed = next(group for group in asked(spec).groups if group.path == logs)
    (old,) = prove_copies("lab", "", [changed])
    assert old.fingerprint != changed.fingerprint
    assert pulled(spec, source.folder, to=out).landed == 1
    copy = out / f"{source.folder}/logs/1/new.txt".lstrip("/")
    with copy.open("r+b") as file:
        file.write(b"W")
    (flipped,) = prove_copies("lab", "", [changed])
    assert flipped.fingerprint == changed.fingerprint
    assert [path for path, _ in flipped.errors] == [f"{logs}/1/new.txt"]


def asked(spec: BoxSpec) -> BoxResults:
    async def ask() -> BoxResults:
        async with connected_agent(spec) as (connection, deployed):
            wanted = ResultsRequest(results=spec.results, ignore=spec.ignore)
            return await request_results(connection, deployed, spec, wanted)

    return asyncio.run(ask())


def test_a_directory_of_which_a_file_was_refused_is_not_whole(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    (source.folder / "logs/empty.pt").touch()
    report = pulled(lab, source.folder, to=tmp_path / "out")
    missing = [row for folder in report.folders for row in folder.missing]
    assert [path for path, _ in missing] == [f"{source.folder}/logs/empty.pt"]
    found = prove_copies("lab", "", asked(lab).groups)
    assert [error for proof in found for error in proof.errors] == missing


def test_what_cannot_be_pulled_is_named_and_the_rest_comes(
    rgt: Rgt, lab: BoxSpec, source: Source
) -> None:
    (source.folder / "empty.pt").touch()
    os.mkfifo(source.folder / "pipe")
    done = rgt.on("pull", "lab", str(source.folder / "nowhere"), str(source.folder))
    assert done.returncode == 1
    for word in (
        "empty.pt: is refused: it has 0 bytes",
        "pipe: is a named pipe",
        "nowhere: No such file",
    ):
        assert word in done.stderr
    assert f"{SMALL + 3} files verified now" in done.stdout


def test_killed_anywhere_it_goes_on(rgt: Rgt, lab: BoxSpec, source: Source) -> None:
    """Killed at random places until it comes through: what was verified is not fetched again, and all is whole."""
    draw = random.Random(os.getpid())
    copies = rgt.folder / "pulled/lab"
    landed = 0
    for _ in range(6):
        running = rgt.start("pull", "lab", str(source.folder))
        enough = draw.random() * 2 * BIG
        while running.poll() is None and came(copies) < enough:
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        running.wait()
        rows = len(list(Ledger(ledger_path("lab", rgt.environment())).file_rows()))
        assert rows >= landed
        landed = rows
    last = rgt.on("pull", "lab", str(source.folder), "--json")
    assert last.returncode == 0, last.stderr
    end = json.loads(last.stdout.splitlines()[-1])
    assert end["same"] >= landed
    assert end["same"] + end["landed"] == SMALL + 3
    assert source.held(source.copy(copies)) == source.held()


def came(folder: Path) -> int:
    """Return the bytes that stand below a directory, unfinished ones included."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue  # it was renamed
    return total


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[PullFetcher], None]], None]:
    """Do something once, when so many bytes have come."""

    def arrange(count: int, what: Callable[[PullFetcher], None]) -> None:
        came = PullFetcher.count_received
        done: list[bool] = []

        def counted(self: PullFetcher, *words: Any) -> None:
            came(self, *words)
            if self.received_bytes >= count and not done:
                done.append(True)
                what(self)

        monkeypatch.setattr(PullFetcher, "count_received", counted)

    return arrange


At = Callable[[int, Callable[[PullFetcher], None]], None]


def came_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count what comes over the line from now on."""
    total = [0]
    came = PullFetcher.count_received

    def counted(self: PullFetcher, task: Any, count: int) -> None:
        total[0] += count
        came(self, task, count)

    monkeypatch.setattr(PullFetcher, "count_received", counted)
    return total


@pytest.mark.parametrize("ssh_from", [0, BIG * 100])
def test_a_connection_that_is_cut_is_made_again_and_no_file_is_lost(
    lab: BoxSpec,
    source: Source,
    tmp_path: Path,
    env: dict[str, str],
    at: At,
    monkeypatch: pytest.MonkeyPatch,
    ssh_from: float,
) -> None:
    made: list[BoxConnection] = []
    connections: list[Any] = []
    reach = BoxConnection.reach

    async def keep(self: BoxConnection) -> Any:
        made.append(self)
        return await reach(self)

    def cut(_: PullFetcher) -> None:
        assert made[0]._open is not None
        connections.append(made[0]._open[0])
        connections[0].abort()

    monkeypatch.setattr(BoxConnection, "reach", keep)
    at(RANGE_BYTES + 5, cut)
    report = pulled(lab, source.folder, to=tmp_path / "out", ssh_from=ssh_from)
    assert (report.is_complete, report.carrier, len(connections)) == (True, "", 1)
    assert source.held(source.copy(tmp_path / "out")) == source.held()


def test_what_an_interrupted_pull_left_is_not_fetched_again(
    lab: BoxSpec,
    source: Source,
    tmp_path: Path,
    env: dict[str, str],
    at: At,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at(2 * RANGE_BYTES, lambda fetcher: fetcher.fail(PullFailed("stopped here")))
    with pytest.raises(PullFailed, match="stopped here"):
        pulled(lab, source.folder / "a.pt", to=tmp_path / "out")
    (part,) = (tmp_path / "out/.rgt-parts").iterdir()
    assert part.stat().st_size >= RANGE_BYTES
    monkeypatch.undo()
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    total = came_in(monkeypatch)
    assert pulled(lab, source.folder / "a.pt", to=tmp_path / "out").is_complete
    assert total[0] <= BIG - RANGE_BYTES
    assert source.held(source.copy(tmp_path / "out"))["a.pt"] == source.held()["a.pt"]


def test_a_damaged_part_is_found_and_only_its_range_fetched_again(
    lab: BoxSpec,
    source: Source,
    tmp_path: Path,
    env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    original = source.folder / "a.pt"
    part = Path(part_path(out, str(original)))
    part.parent.mkdir(parents=True)
    data = bytearray(original.read_bytes()[: 2 * RANGE_BYTES])
    data[RANGE_BYTES + 7] ^= 1
    part.write_bytes(data)
    total = came_in(monkeypatch)
    assert pulled(lab, original, to=out).is_complete
    assert (out / str(original).lstrip("/")).read_bytes() == original.read_bytes()
    assert total[0] == BIG - RANGE_BYTES


@pytest.mark.parametrize("name", ["a.pt", "logs/1/40.txt"])
def test_a_file_that_changes_while_it_is_read_is_taken_again(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str], at: At, name: str
) -> None:
    path = source.folder / name
    if not path.exists():
        path.write_bytes(os.urandom(WHOLE_BYTES - 5))

    before = path.read_bytes()

    def change(_: PullFetcher) -> None:
        with path.open("r+b") as file:
            file.seek(-3, os.SEEK_END)
            file.write(b"new")

    at(100_000, change)
    report = pulled(lab, path, to=tmp_path / "out", limit=400e6)
    assert report.is_complete, report.refused
    # A small one may have been sent whole before the change; what must not come is something of both.
    copy = (tmp_path / "out" / str(path).lstrip("/")).read_bytes()
    assert copy == path.read_bytes() or (copy == before and name != "a.pt")


def test_a_file_that_never_rests_is_named(
    lab: BoxSpec,
    source: Source,
    tmp_path: Path,
    env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = source.folder / "a.pt"
    came = PullFetcher.count_received

    def changing(self: PullFetcher, task: Any, count: int) -> None:
        came(self, task, count)
        with path.open("r+b") as file:
            file.write(b"%16d" % self.received_bytes)

    monkeypatch.setattr(PullFetcher, "count_received", changing)
    report = pulled(lab, path, source.folder / "logs", to=tmp_path / "out")
    assert [row.path for row in report.refused] == [str(path)]
    assert "while it is read" in report.refused[0].reason
    assert report.landed == SMALL


def test_a_log_that_grows_comes_as_it_was_and_is_named(
    lab: BoxSpec,
    source: Source,
    tmp_path: Path,
    env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = source.folder / "a.pt"
    came = PullFetcher.count_received

    def growing(self: PullFetcher, task: Any, count: int) -> None:
        came(self, task, count)
        with path.open("ab") as file:
            file.write(b"more\n")

    monkeypatch.setattr(PullFetcher, "count_received", growing)
    report = pulled(lab, path, to=tmp_path / "out")
    copy = (tmp_path / "out" / str(path).lstrip("/")).read_bytes()
    assert len(copy) >= BIG
    assert path.read_bytes().startswith(copy)
    assert [row.path for row in report.refused] == [str(path)]
    assert "grows" in report.refused[0].reason


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    with mounted_disk(tmp_path / "tiny", "24m") as folder:
        yield folder


def test_a_disk_that_cannot_hold_it_is_told_before_the_first_byte(
    lab: BoxSpec, source: Source, tiny: Path, env: dict[str, str]
) -> None:
    with pytest.raises(
        PullFailed, match=r"no room under .*tiny: [\d,]+ bytes are needed, [\d,]+ are free"
    ):
        pulled(lab, source.folder, to=tiny)
    assert came(tiny) == 0


def test_a_disk_that_fills_up_loses_nothing(
    lab: BoxSpec, source: Source, tiny: Path, env: dict[str, str], at: At
) -> None:
    filler = tiny / "filler"
    path = source.folder / "a.pt"

    def fill(_: PullFetcher) -> None:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(tiny).free - (6 << 20))

    at(RANGE_BYTES // 2, fill)
    with pytest.raises(
        PullFailed, match=r"is full: .*a\.pt needs [\d,]+ bytes, [\d,]+ bytes are free"
    ):
        pulled(lab, source.folder / "logs", path, to=tiny)
    filler.unlink()
    report = pulled(lab, source.folder / "logs", path, to=tiny)
    assert report.is_complete
    assert report.same == SMALL
    assert (tiny / str(path).lstrip("/")).read_bytes() == path.read_bytes()


def test_two_pulls_of_one_box_do_not_meet(rgt: Rgt, lab: BoxSpec, source: Source) -> None:
    first = rgt.start("pull", "lab", str(source.folder), "--limit", "20K")
    try:
        while not (rgt.folder / "pulled/lab/.rgt-parts").exists() and first.poll() is None:
            time.sleep(0.01)
        second = rgt.on("pull", "lab", str(source.folder))
        assert second.returncode == 1
        assert "another rgt pulls from lab" in second.stderr
    finally:
        first.kill()
        first.communicate()


def test_a_large_file_that_another_pull_writes_is_left_to_it_and_pulled_later(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    path = source.folder / "a.pt"
    part = Path(part_path(tmp_path / "out", str(path)))
    part.parent.mkdir(parents=True)
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"theirs")
        other.flush()
        with pytest.raises(PullFailed, match="another rgt writes to it right now"):
            pulled(lab, path, to=tmp_path / "out")
        assert part.read_bytes() == b"theirs"
    assert pulled(lab, path, to=tmp_path / "out").is_complete
    assert source.held(source.copy(tmp_path / "out"))["a.pt"] == path.read_bytes()


def test_a_box_that_is_not_there_is_told(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(lab, port=1)])
    done = rgt.on("pull", "lab", "/x")
    assert done.returncode == 3
    assert "the next rgt pull resumes" in done.stderr


def test_a_verified_copy_is_not_replaced_by_a_shorter_one(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    path, out = source.folder / "logs/1/37.txt", tmp_path / "out"
    good = path.read_bytes()
    assert pulled(lab, path, to=out).is_complete
    path.write_bytes(good[:100])
    report = pulled(lab, path, to=out)
    local = out / str(path).lstrip("/")
    assert local.read_bytes() == good
    (other,) = local.parent.glob("37.rgt-*.txt")
    assert other.read_bytes() == good[:100]
    assert str(other) in report.beside[0].reason
    assert pulled(lab, path, to=out).same == 1


def test_a_copy_that_was_changed_here_is_kept_and_fetched_again(
    lab: BoxSpec, source: Source, tmp_path: Path, env: dict[str, str]
) -> None:
    path, out = source.folder / "logs/1/37.txt", tmp_path / "out"
    assert pulled(lab, path, to=out).is_complete
    local = out / str(path).lstrip("/")
    local.write_bytes(b"my own notes")
    assert pulled(lab, path, to=out).is_complete
    assert local.read_bytes() == path.read_bytes()
    assert [file.read_bytes() for file in local.parent.glob("37.rgt-*")] == [b"my own notes"]


def test_a_box_that_grants_one_session_at_a_time_is_pulled_from(
    tmp_path: Path, env: dict[str, str]
) -> None:
    (tmp_path / "sshd").mkdir()
    with running_sshd(tmp_path / "sshd", options="MaxSessions 1") as running:
        source = Source(running.folder / "box" / "results")
        report = pulled(running.spec, source.folder / "logs", to=tmp_path / "out")
    assert (report.is_complete, report.landed) == (True, SMALL)


def test_a_pull_that_cannot_write_down_what_came_leaves_nobody_looking(
    lab: BoxSpec,
    source: Source,
    env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def close(*_: object) -> None:
        raise LedgerError("cannot write it")

    async def alone() -> bool:
        request = PullRequest(paths=(str(source.folder),), destination=tmp_path / "out")
        with pytest.raises(PullFailed, match="cannot write it"):
            await pulling.pull_box(lab, request)
        return asyncio.all_tasks() == {asyncio.current_task()}

    monkeypatch.setattr(pulling, "_finish_pull", close)
    assert asyncio.run(alone())


def test_a_time_limit_while_the_files_are_closed_is_reported(
    lab: BoxSpec,
    source: Source,
    env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a network disk: ETIMEDOUT is a TimeoutError."""

    def close(*_: object) -> None:
        raise TimeoutError("the disk did not answer")

    monkeypatch.setattr(pulling, "_finish_pull", close)
    report = pulled(lab, source.folder, to=tmp_path / "out")
    assert (report.unconfirmed, report.is_complete) == ("the disk did not answer", False)
    assert report.landed > 0
