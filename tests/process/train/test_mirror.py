"""A second copy elsewhere: read back before it counts, and the way home when the local disk is wiped."""

from __future__ import annotations

import errno
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from rgt_train import UsageError, exits
from rgt_train.checkpoint import (
    CheckpointDamaged,
    CheckpointStore,
    FolderPlace,
    KeepPolicy,
    MirrorRequests,
    SaveJob,
    best_items,
    download_logs,
    fetch_directory,
    keep_logs,
    manifest,
    mirror_places,
    mirror_worker,
    open_place,
    perform_job,
    verify_copy,
    write_all,
)
from rgt_train.checkpoint import mirror as client
from rgt_train.tracking.report import RunReport
from rgt_train.tracking.run_log import RunLog

from tests.process.train.harness import Zygote, assert_same, events, final_state, losses, wipe
from tests.process.train.test_damage import flip

LAST = 80
SLOW = {"pace_ms": 20}


def publish(out: Path, step: int, kind: str = "step", size: int = 3000) -> Path:
    out.mkdir(exist_ok=True)
    data = bytes(range(256)) * (size // 256 + 1)
    about = {"best": {"step": step, "metric": "m", "value": 1.0}, "time": 3600.0 * step}
    done = perform_job(
        CheckpointStore(out, 1, KeepPolicy(9)),
        SaveJob(kind, step, about, [("a", 0, size)]),
        memoryview(data),
        b"{}",
    )
    assert done.path is not None
    return Path(done.path)


class TestFolder:
    def test_a_copy_counts_after_it_was_read_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source, place = publish(tmp_path / "run", 7), FolderPlace(str(tmp_path / "mirror"))
        answer = mirror_worker.copy_and_verify(place, str(source), source.name, KeepPolicy())
        assert answer["bytes"] == 3002
        assert manifest.verify_checkpoint(tmp_path / "mirror" / source.name)["step"] == 7
        real = FolderPlace.stream_file

        def altered(self: FolderPlace, name: str, file: str) -> Any:
            for piece in real(self, name, file):
                yield piece[:-1] + bytes([piece[-1] ^ 1]) if file == "a" else piece

        monkeypatch.setattr(FolderPlace, "stream_file", altered)
        with pytest.raises(CheckpointDamaged, match="a reads back differently"):
            mirror_worker.copy_and_verify(place, str(source), source.name, KeepPolicy())

    def test_the_policy_holds_there_too(self, tmp_path: Path) -> None:
        place = FolderPlace(str(tmp_path / "mirror"))
        for step in (1, 2, 3, 26):
            source = publish(tmp_path / "run", step)
            mirror_worker.copy_and_verify(place, str(source), source.name, KeepPolicy(1, 24.0))
        for step in (2, 3):
            mirror_worker.copy_and_verify(
                place,
                str(publish(tmp_path / "run", step, "best")),
                f"best-{step:08d}-a1",
                KeepPolicy(1, 24.0),
            )
        kept = ["best-00000003-a1", "step-00000001-a1", "step-00000026-a1"]
        assert sorted(place.list_names()) == kept

    def test_a_checkpoint_that_was_pruned_meanwhile_is_no_failure(self, tmp_path: Path) -> None:
        place = FolderPlace(str(tmp_path / "mirror"))
        assert mirror_worker.copy_and_verify(
            place, str(tmp_path / "gone"), "step-00000001-a1", KeepPolicy()
        ) == {"gone": True}

    def test_a_half_copy_of_a_dead_process_is_replaced(self, tmp_path: Path) -> None:
        source, mirror = publish(tmp_path / "run", 7), tmp_path / "mirror"
        place = FolderPlace(str(mirror))
        (mirror / f".tmp-{source.name}").mkdir()
        (mirror / f".tmp-{source.name}" / "a").write_text("half")
        assert place.list_names() == []
        mirror_worker.copy_and_verify(place, str(source), source.name, KeepPolicy())
        verify_copy(place, source.name, manifest.read_manifest(source)["files"])
        assert [path.name for path in mirror.iterdir()] == [source.name]

    def test_what_was_copied_now_is_not_pruned(self, tmp_path: Path) -> None:
        """A mirror may hold later steps than this launch: of a time that is lost, or damaged there."""
        place, run = FolderPlace(str(tmp_path / "mirror")), tmp_path / "run"
        for step, name in ((9, "step-00000009-a1"), (5, "step-00000005-a2")):
            mirror_worker.copy_and_verify(place, str(publish(run, step)), name, KeepPolicy(1))
        assert sorted(place.list_names()) == ["step-00000005-a2", "step-00000009-a1"]
        for step, name in (
            (9, "best-00000009-a1"),
            (5, "best-00000005-a2"),
            (7, "best-00000007-a2"),
        ):
            mirror_worker.copy_and_verify(
                place, str(publish(run, step, "best")), name, KeepPolicy(1)
            )
            assert [item.name for item in best_items(place.list_names())] == [name], (
                "of the last launch"
            )

    def test_what_killed_copies_left_is_swept(self, tmp_path: Path) -> None:
        source, mirror = publish(tmp_path / "run", 7), tmp_path / "mirror"
        place = FolderPlace(str(mirror))
        for name in (".tmp-step-00000003-a1", ".old-best-00000002-a1"):
            shutil.copytree(source, mirror / name)
        for name in (".tmp-mine", "step-00000003", ".trash"):
            (mirror / name).mkdir()
        errands = MirrorRequests(place, str(tmp_path / "run"), "l1", held=False)
        errands.perform_request(
            {"do": "copy", "path": str(source), "name": source.name, "last": 1, "hours": 0.0}
        )
        left = {path.name for path in mirror.iterdir()}
        assert left == {".tmp-mine", "step-00000003", ".trash", source.name, "owner.json"}

    def test_a_full_place_gives_up_what_is_worth_least(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place, run = FolderPlace(str(tmp_path / "mirror")), tmp_path / "run"
        for step in (1, 2, 3):
            mirror_worker.copy_and_verify(
                place, str(publish(run, step)), f"step-{step:08d}-a1", KeepPolicy(9)
            )
        for step in (1, 2):
            shutil.copytree(publish(run, step, "best"), tmp_path / "mirror" / f"best-{step:08d}-a1")
        room, says = [4], list[str]()

        def full(fd: int, data: Any, path: Any) -> None:
            if len(place.list_names()) > room[0]:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            write_all(fd, data, path)

        monkeypatch.setattr(mirror_places, "write_all", full)
        mirror_worker.copy_and_verify(
            place, str(publish(run, 4)), "step-00000004-a1", KeepPolicy(9), says
        )
        assert [line.rsplit("gave up ", 1)[1] for line in says] == ["best-00000001-a1 there"]
        room[0] = 2
        mirror_worker.copy_and_verify(
            place, str(publish(run, 5)), "step-00000005-a1", KeepPolicy(1), says
        )
        assert sorted(place.list_names()) == ["best-00000002-a1", "step-00000005-a1"]
        assert [line.rsplit("-0000000", 1)[1][:1] for line in says[1:]] == ["1", "2", "3"]
        room[0] = 0
        with pytest.raises(OSError, match="No space left"):
            mirror_worker.copy_and_verify(
                place, str(publish(run, 6)), "step-00000006-a1", KeepPolicy(1), says
            )
        assert sorted(place.list_names()) == ["best-00000002-a1", "step-00000005-a1"], (
            "the newest of both stay"
        )

    def test_fetched_bytes_are_verified(self, tmp_path: Path) -> None:
        source, mirror = publish(tmp_path / "run", 7), tmp_path / "mirror"
        place = FolderPlace(str(mirror))
        mirror_worker.copy_and_verify(place, str(source), source.name, KeepPolicy())
        fetch_directory(place, source.name, str(tmp_path / "back"))
        assert (tmp_path / "back" / "a").read_bytes() == (source / "a").read_bytes()
        flip(mirror / source.name / "a", 0.5)
        with pytest.raises(CheckpointDamaged, match="a: crc32"):
            fetch_directory(place, source.name, str(tmp_path / "again"))
        assert not (tmp_path / "again").exists()

    def test_a_copy_without_one_of_its_files_is_damaged_and_made_again(
        self, tmp_path: Path
    ) -> None:
        run, mirror = tmp_path / "run", tmp_path / "mirror"
        place = FolderPlace(str(mirror))
        for step in (1, 2):
            source = publish(run, step)
            mirror_worker.copy_and_verify(place, str(source), source.name, KeepPolicy(9))
        (mirror / source.name / "a").unlink()
        path, says = mirror_worker.download_newest(
            place, CheckpointStore(tmp_path / "wiped", 2), None
        )
        assert path is not None and path.endswith("step-00000001-a1"), "the one before is good"
        assert "step-00000002-a1 is damaged, not used: a is missing" in says[0]
        mirror_worker.copy_and_verify(place, str(source), source.name, KeepPolicy(9))
        verify_copy(place, source.name, manifest.read_manifest(source)["files"])
        # A volume that is gone meanwhile says nothing about its copies.
        shutil.rmtree(mirror)
        with pytest.raises(FileNotFoundError):
            verify_copy(place, source.name, manifest.read_manifest(source)["files"])

    def test_places_that_are_mistakes(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="absolute path"):
            open_place("mirror")
        with pytest.raises(FileNotFoundError):
            open_place(str(tmp_path / "not" / "mounted"))
        with pytest.raises(UsageError, match="mirror nosuch://x"):
            open_place("nosuch://x")


def test_an_object_store_keeps_an_owner_and_is_swept(tmp_path: Path) -> None:
    """The store in memory that comes with fsspec: what is true of every file system of it."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    place = open_place(f"memory://{tmp_path.name}/run")
    place.remove_partial()
    assert (place.list_names(), place.read_note()) == ([], b"")
    run = tmp_path / "run"
    for step in (7, 8):
        mirror_worker.copy_and_verify(
            place, str(publish(run, step)), f"step-{step:08d}-a1", KeepPolicy(2)
        )
    for name in ("step-00000003-a1", "best-00000003-a1", "notes"):
        memory.pipe_file(f"/{tmp_path.name}/run/{name}/a", b"half")
    memory.rm_file(f"/{tmp_path.name}/run/step-00000007-a1/manifest.json")
    place.write_note(b"owner")
    place.remove_partial()
    left = sorted(
        path.rsplit("/", 1)[1] for path in memory.ls(f"/{tmp_path.name}/run", detail=False)
    )
    assert left == ["notes", "owner.json", "step-00000008-a1"]
    assert place.read_note() == b"owner"
    assert place.read_note("metrics.jsonl") == b""
    place.write_note(b"{}\n", "metrics.jsonl")
    assert (place.read_note("metrics.jsonl"), place.read_note()) == (b"{}\n", b"owner")
    memory.rm(f"/{tmp_path.name}", recursive=True)


class TestOwner:
    def errands(
        self, tmp_path: Path, out: str, launch: str, *, held: bool = False
    ) -> MirrorRequests:
        (tmp_path / out).mkdir(exist_ok=True)
        return MirrorRequests(
            FolderPlace(str(tmp_path / "mirror")), str(tmp_path / out), launch, held=held
        )

    def copy(self, errands: MirrorRequests, tmp_path: Path, out: str, step: int) -> None:
        source = publish(tmp_path / out, step)
        errands.perform_request(
            {"do": "copy", "path": str(source), "name": source.name, "last": 1, "hours": 0.0}
        )

    def download(self, errands: MirrorRequests, local: int | None) -> str | None:
        path: str | None = errands.perform_request(
            {"do": "download", "attempt": 2, "local": local}
        )["path"]
        return path

    def test_another_run_is_refused_and_changes_nothing(self, tmp_path: Path) -> None:
        first = self.errands(tmp_path, "a", "l1")
        assert self.download(first, None) is None
        self.copy(first, tmp_path, "a", 5)
        publish(tmp_path / "b", 9)
        second = self.errands(tmp_path, "b", "l2")
        with pytest.raises(
            UsageError, match=r"belongs to another run \(\w+, last held by .*:.*/a\)"
        ):
            self.download(second, 9)
        with pytest.raises(UsageError, match="belongs to another run"):
            self.copy(second, tmp_path, "b", 10)
        with pytest.raises(UsageError, match="belongs to another run"):
            second.perform_request({"do": "forget", "first": 1})
        assert first._place.list_names() == ["step-00000005-a1"]
        self.copy(first, tmp_path, "a", 6)

    def test_a_wiped_disk_takes_over_and_a_launch_that_still_runs_is_told(
        self, tmp_path: Path
    ) -> None:
        first = self.errands(tmp_path, "a", "l1")
        self.copy(first, tmp_path, "a", 5)
        second = self.errands(tmp_path, "b", "l2")
        assert self.download(second, None) is not None
        assert (tmp_path / "b" / "run-id").read_text() == (tmp_path / "a" / "run-id").read_text()
        with pytest.raises(
            UsageError, match=r"another launch of this run took the mirror .* over: .*/b\."
        ):
            self.copy(first, tmp_path, "a", 6)
        self.copy(second, tmp_path, "b", 7)
        again = self.errands(
            tmp_path, "a", "l3"
        )  # the first box comes back, when the second is gone
        assert self.download(again, 6) == str(tmp_path / "a" / "checkpoints" / "step-00000007-a1")
        restarted = self.errands(tmp_path, "a", "l3", held=True)
        self.copy(restarted, tmp_path, "a", 8)

    def test_a_mirror_of_an_earlier_version_gets_an_owner(self, tmp_path: Path) -> None:
        source = publish(tmp_path / "a", 5)
        mirror_worker.copy_and_verify(
            FolderPlace(str(tmp_path / "mirror")), str(source), source.name, KeepPolicy()
        )
        first = self.errands(tmp_path, "a", "l1")
        assert self.download(first, 5) is None
        owner = json.loads((tmp_path / "mirror" / "owner.json").read_text())
        assert owner["run"] == (tmp_path / "a" / "run-id").read_text().strip()
        (tmp_path / "mirror" / "owner.json").write_text("{")
        with pytest.raises(UsageError, match=r"owner\.json cannot be understood"):
            self.copy(self.errands(tmp_path, "a", "l2"), tmp_path, "a", 6)

    def test_a_full_mirror_can_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.copy(self.errands(tmp_path, "a", "l1"), tmp_path, "a", 5)

        def refuse(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(mirror_places, "replace_file", refuse)
            second = self.errands(tmp_path, "b", "l2")
            assert self.download(second, None) is not None
            assert not second.held
        self.copy(second, tmp_path, "b", 6)
        assert second.held

    def test_a_stale_best_is_replaced_by_that_of_the_mirror(self, tmp_path: Path) -> None:
        for out, step in (("a", 2), ("b", 8)):
            publish(tmp_path / out, step, "best")
        mirror = tmp_path / "mirror"
        mirror.mkdir()
        shutil.copytree(tmp_path / "b" / "best", mirror / "best-00000008-a1")
        errands = self.errands(tmp_path, "a", "l1")
        assert self.download(errands, 5) is None
        assert manifest.verify_checkpoint(tmp_path / "a" / "best")["step"] == 2, (
            "nothing newer there: this one is right"
        )
        shutil.copytree(publish(tmp_path / "b", 9), mirror / "step-00000009-a1")
        assert self.download(errands, 5) is not None
        assert manifest.verify_checkpoint(tmp_path / "a" / "best")["step"] == 8
        assert not list((tmp_path / "a" / "checkpoints").glob(".*"))


def test_a_damaged_best_ends_no_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = publish(tmp_path / "run", 2, "best")
    (best / manifest.NAME).write_text("")
    store = CheckpointStore(tmp_path / "run", 1)
    report = RunReport(tmp_path / "run")
    client.CheckpointMirror(str(tmp_path), store, report, lambda pid: None).queue_all(None)
    assert f"not mirrored: {best} is damaged: " in capsys.readouterr().out


def test_a_long_wait_for_the_mirror_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks take one that they hear nothing of for dead."""
    monkeypatch.setattr(client, "ALIVE_S", 0.001)
    (tmp_path / "mirror").mkdir()
    signs: list[int] = []
    mirror = client.CheckpointMirror(
        str(tmp_path / "mirror"),
        CheckpointStore(tmp_path, 1),
        RunReport(tmp_path),
        lambda pid: None,
    )
    mirror.on_wait = lambda: signs.append(1)
    try:
        assert mirror.fetch_newer(None) is None
    finally:
        mirror.close()
    assert signs, "its process has to start first"


@pytest.fixture(scope="module")
def reference(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    assert trainers.launch(out).wait() == 0
    return out


def same_end(out: Path, reference: Path) -> None:
    left, right = final_state(out, LAST), final_state(reference, LAST)
    assert_same(left[0], right[0])
    for key in ("objects", "rng", "sampler"):
        assert_same(left[1][key], right[1][key], key)
    for name in ("result.json", "best.json"):
        assert json.loads((out / name).read_text()) == json.loads((reference / name).read_text())


def test_a_wiped_disk_comes_back_from_the_mirror(
    trainers: Zygote, reference: Path, tmp_path: Path
) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    values = {**SLOW, "mirror": mirror}
    first = trainers.launch(out, values, brake=70)
    first.wait_line(r"^mirrored best-00000040-a1 → ")
    first.wait_line(r"^mirrored step-000000[4-7]\d-a1 → ")
    first.kill()
    wipe(out)
    (mirror / ".tmp-step-00000079-a1").mkdir()  # what a killed copy leaves
    again = trainers.launch(out, {"mirror": mirror})
    assert again.wait() == 0, again.text()
    fetched = again.wait_line(r"^fetched step-")
    assert f"from the mirror {mirror}" in fetched
    assert "fetched best-00000040-a1 from the mirror" in again.text()
    same_end(out, reference)
    assert {"mirrored", "checkpoint"} <= {line.get("event") for line in map(json.loads, lines(out))}
    step = max(losses(out))
    assert step == LAST
    assert [path.name for path in mirror.iterdir() if f"{LAST:08d}" in path.name]
    after = again.lines.index(
        next(line for line in again.lines if line.startswith("mirrored step-00000080"))
    )
    assert again.lines[-1].startswith("done: ")
    assert after < len(again.lines) - 1, "done only when the second copy was read back"


def diary(out: Path) -> list[tuple[str, int]]:
    lines = map(json.loads, (out / "ledger.jsonl").read_text().splitlines())
    return [
        (line.get("cause", line["event"]), line["attempt"])
        for line in lines
        if line["event"] not in ("alive", "gathering")
    ]


def test_a_wiped_disk_keeps_its_failure_count_and_its_curves(
    trainers: Zygote, reference: Path, tmp_path: Path
) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    values = {**SLOW, "mirror": mirror}
    first = trainers.launch(out, values, brake=50)
    first.wait_line(r"^mirrored step-000000[2-7]\d-a1 → ")
    first.kill()
    wipe(out)
    second = trainers.launch(out, values, brake=70)
    second.wait_line(r"^fetched ledger.jsonl and metrics.jsonl from the mirror")
    told = second.wait_line("^resume: at step")
    assert (
        "attempt 2, the last one ended by: killed; work lost: " in told
        and " to unknown steps" in told
    )
    second.wait_line(r"^mirrored step-\d+-a2 → ")
    second.signal(signal.SIGTERM)
    assert second.wait() == exits.PREEMPTED
    assert (mirror / "ledger.jsonl").read_bytes() == (out / "ledger.jsonl").read_bytes(), (
        "to the last line"
    )
    assert (mirror / "metrics.jsonl").read_bytes() == (out / "metrics.jsonl").read_bytes()
    shutil.rmtree(out)
    third = trainers.launch(out, {"mirror": mirror})
    assert third.wait() == 0, third.text()
    assert "attempt 3, the last one ended by: SIGTERM" in third.text()
    past = RunLog(out).past
    assert (past.attempts, past.failures) == (3, 2), "both count for the save interval"
    assert diary(out) == [("start", 1), ("start", 2), ("SIGTERM", 2), ("start", 3), ("done", 3)]
    assert losses(out) == losses(reference), "every step of every launch"
    same_end(out, reference)


def test_the_logs_go_there_and_back(tmp_path: Path) -> None:
    place, out = FolderPlace(str(tmp_path / "mirror")), tmp_path / "run"
    assert download_logs(place, str(out)) == []
    out.mkdir()
    keep_logs(place, str(out))
    (out / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    (out / "ledger.jsonl").write_bytes(b"{}")
    keep_logs(place, str(out))
    assert (tmp_path / "mirror" / "metrics.jsonl").read_bytes() == b'{"step": 1}\n{"step": 2}\n'
    assert not (tmp_path / "mirror" / "ledger.jsonl").exists(), "no full line yet"
    assert place.list_names() == []
    place.remove_partial()
    here = (out / "metrics.jsonl").read_bytes()
    assert download_logs(place, str(out)) == []
    assert (out / "metrics.jsonl").read_bytes() == here, "what is there is never touched"
    (out / "metrics.jsonl").write_bytes(b"")
    assert download_logs(place, str(out)) == ["metrics.jsonl"]
    assert (out / "metrics.jsonl").read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_logs_that_the_mirror_refuses_cost_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "mirror" / "metrics.jsonl").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_bytes(b"{}\n")
    errands = MirrorRequests(
        FolderPlace(str(tmp_path / "mirror")), str(tmp_path / "run"), "l1", held=False
    )
    said = []
    for step in (1, 2):
        source = publish(tmp_path / "run", step)
        said.append(
            errands.perform_request(
                {"do": "copy", "path": str(source), "name": source.name, "last": 2, "hours": 0.0}
            )["says"]
        )
    assert len(said[0]) == 1 and said[0][0].startswith(
        "the logs are not mirrored: IsADirectoryError"
    )
    assert said[1] == [], "told once"
    assert len(errands._place.list_names()) == 2


def lines(out: Path) -> list[str]:
    return (out / "metrics.jsonl").read_text().splitlines()


def test_a_damaged_local_disk_falls_back_to_the_mirror(
    trainers: Zygote, reference: Path, tmp_path: Path
) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    assert trainers.launch(out, {"mirror": mirror}).wait() == 0
    (out / "result.json").unlink()
    for path in [*(out / "checkpoints").glob("step-*"), out / "best"]:
        flip(path / "model.safetensors", 0.5)
    again = trainers.launch(out, {"mirror": mirror})
    assert again.wait() == 0, again.text()
    assert "is damaged, not used" in again.text()
    assert events(out, "resume")[0]["step"] == LAST
    same_end(out, reference)


def test_a_wiped_disk_and_a_mirror_with_nothing_good(
    trainers: Zygote, reference: Path, tmp_path: Path
) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    assert trainers.launch(out, {"mirror": mirror}).wait() == 0
    for path in mirror.glob("step-*"):
        flip(path / "model.safetensors", 0.5)
    best = next(mirror.glob("best-*"))
    shutil.copytree(out, tmp_path / "here")
    shutil.rmtree(out)
    again = trainers.launch(out, {"mirror": mirror})
    assert again.wait() == 0, again.text()
    assert events(out, "resume")[0]["step"] == int(best.name[5:13]), (
        "best is the last resort, there too"
    )
    same_end(out, reference)
    # Damaged here, and all of it damaged there.
    shutil.rmtree(out)
    for path in mirror.glob("*-*"):
        flip(path / "state.json", 0.5)
    names = sorted(p.name for p in mirror.iterdir())
    last = trainers.launch(out, {"mirror": mirror})
    assert last.wait() == exits.USAGE, last.text()
    assert (
        f"no checkpoint in the mirror {mirror} is good, and none was deleted: {mirror}/"
        in last.text()
    )
    assert sorted(p.name for p in mirror.iterdir()) == names
    assert not list((out / "checkpoints").glob("step-*"))


def test_a_mirror_that_fails_does_not_stop_the_training(trainers: Zygote, tmp_path: Path) -> None:
    out, mirror = tmp_path / "run", tmp_path / "mirror"
    values = {"mirror": mirror, "hold_limit": 1, "epochs": 1, **SLOW}
    trainer = trainers.launch(out, values, brake=20)
    trainer.wait_line(r"^mirrored step-")
    mirror.rename(tmp_path / "away")
    mirror.write_text("in the way")
    trainer.go_on()
    trainer.wait_line(r"^mirror failed at \S+: ")
    trainer.wait_line(r"^step 40 ")
    assert trainer.wait() == exits.NO_SPACE
    assert "not mirrored: step-00000040-a1 is on the local disk only" in trainer.text()
    assert events(out, "mirror-failed")
    assert not (out / "result.json").exists(), "a relaunch is to try again"
    mirror.unlink()
    again = trainers.launch(out, {**values, "pace_ms": 0})
    assert again.wait() == 0, again.text()
    assert (mirror / "step-00000040-a1" / "manifest.json").exists()


def test_nothing_here_and_a_mirror_that_does_not_answer_is_no_fresh_start(
    trainers: Zygote, tmp_path: Path
) -> None:
    trainer = trainers.launch(tmp_path / "run", {"mirror": tmp_path / "not" / "mounted"})
    assert trainer.wait() == exits.USAGE
    assert "has no checkpoint, and the mirror" in trainer.text()
