"""Verifies a directory of results: hashes all files, examines all checkpoints, runs no code in it.

Each file is checked for three things: does it exist with the right content (by the pull, a
manifest, or the last verification), is it complete (by its own structure and checksums), and does
it load (with torch, if installed).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import rgt_tui
from rgt_tui.model import clean, moment
from rgt_tui.profiles import how_many
from rgt_tui.transfer import dcp_files, directory_contents, verified_record
from rgt_tui.transfer.copying.box_listing import PARTS
from rgt_tui.transfer.directory_contents import Group, Job
from rgt_tui.transfer.examining import Asked, Ended, examiner, has_torch, loader
from rgt_tui.transfer.ledger import Copied, FolderRow, Stamp, said, sha256_of
from rgt_tui.transfer.verified_record import (
    Brought,
    CheckpointFound,
    Expected,
    Problem,
    Verification,
    VerifiedFile,
)

Progress = Callable[[int, int, str], None]
"""Called with bytes done, total bytes, and the file that was finished."""
_THREADS = 4
_LOOK_S = 0.2
"""Seconds between two progress reports while only hashing remains."""
_NOTHING: dict[str, Any] = {}
"""The answer about most files: nothing to report."""
_LOGS = ("events", "lines", "json")
_WHY = {
    "safetensors": "its offsets are right, its content cannot be proven: the format has no checksums",
    "legacy": "its lengths are right, its content cannot be proven: files from before torch 1.6 have no checksums",
    "torch": "its lengths are right, its content cannot be proven: it was saved without checksums",
    "gguf": "its tensors are at the stated positions, their content cannot be proven: the format has no checksums",
    "npy": "its length is right, its content cannot be proven: the format has no checksums",
    "hdf5": "its length matches its superblock, its content was not checked",
    "pickle": "it was checked, not loaded; its content cannot be proven: a pickle has no checksums",
    "metadata": "it fits the parts that it names, its content cannot be proven: the format has no checksums",
}


class NotVerifiable(Exception):
    """A directory cannot be verified; the message has its name and the reason."""


def verify(
    directory: Path,
    expect: int | None = None,
    *,
    pulled: Iterable[Copied | FolderRow] = (),
    renew: bool = False,
    with_torch: bool = True,
    progress: Progress | None = None,
) -> Verification:
    """Verify everything in a directory, write the result into it, and return it. It blocks.

    Args:
        directory: The directory.
        expect: Minimum number of complete checkpoints.
        pulled: Rows of the ledger: their files must exist, with the hashes that the box reported;
            files that a pull could not fetch are errors.
        renew: Ignore the result of the last verification.
        with_torch: Load files of torch.save with torch, if installed.
        progress: Called for progress reports, in this thread.

    Raises:
        NotVerifiable: it is not a directory, or cannot be listed.
    """
    root = Path(os.path.abspath(directory))  # noqa: PTH100
    brought = verified_record.expected_by_ledger(root, pulled)
    came = verified_record.RECORDS & set(brought.files)
    try:
        files, problems = directory_contents.list_directory(root, verified_record.RECORDS - came)
    except OSError as error:
        raise NotVerifiable(f"cannot read {directory}: {error.strerror or error}") from error
    work = _Work(root, files, progress, may_write=not came)
    del files
    for path in came:
        work.wrong(
            path,
            "it came from the box with the name of rgt's verification record: move it away",
        )
    for path, reason in problems:
        work.wrong(path, reason)
    work.expect(brought, renew)
    del brought
    sizes = ((path, row.size) for path, row in work.files.items())
    plan = directory_contents.plan_examination(dict(directory_contents.read_heads(root, sizes)))
    hashing = _Hashing(work)
    try:
        answers = work.examine(plan, with_torch)
        hashing.finish()
    finally:
        hashing.stop()
    work.compare()
    work.judge(plan, answers)
    if not work.files:
        work.wrong(".", "there is no file in it")
    whole = work.whole(plan, answers)
    if expect is not None and len(whole) < expect:
        work.wrong(".", f"it has {how_many(len(whole), 'complete checkpoint')}, expected: {expect}")
    return work.finish(whole)


class _File(msgspec.Struct, gc=False):
    """The current knowledge about a file; packed, as there may be hundreds of thousands."""

    size: int
    wanted: str = ""
    """The expected SHA-256; empty = unknown."""
    by: str = ""
    """Source of the expected hash, as `Expected.by`."""
    proof: str = ""
    """What proves that its bytes are right, as `VerifiedFile.proof`."""
    before: bytes = b""
    """The state after the last verification, packed."""
    now: bytes = b""
    """The current state, packed; empty = it was not read."""


def _packed(sha256: str, stamp: Stamp, proof: str = "") -> bytes:
    return msgspec.msgpack.encode((sha256, stamp, proof))


_unpacked = msgspec.msgpack.Decoder(tuple[str, Stamp, str]).decode


class _Hashing:
    """Hashes all files of a directory in daemon threads, so that an interrupt need not wait."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._paths = iter(work.files)
        self._guard = threading.Lock()
        self._stopped = False
        self._fault: BaseException | None = None
        self._troubles: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._run, name=f"rgt-hash-{number}", daemon=True)
            for number in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped and (path := self._next()) is not None:
                try:
                    self._work.hash(path)
                except OSError as error:
                    self._troubles[path] = f"it cannot be read: {error.strerror or error}"
        except BaseException as fault:
            self._fault, self._stopped = fault, True

    def _next(self) -> str | None:
        with self._guard:
            return next(self._paths, None)

    def finish(self) -> None:
        """Wait until all are hashed, and record read errors."""
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_LOOK_S)
                self._work.report()
        if self._fault is not None:
            raise self._fault
        for path in self._work.files if self._troubles else ():
            if path in self._troubles:
                self._work.wrong(path, self._troubles[path])

    def stop(self) -> None:
        """Make each thread stop after its current file."""
        self._stopped = True


class _Work:
    """What is known so far about the files of a directory."""

    def __init__(
        self, root: Path, files: Mapping[str, int], progress: Progress | None, may_write: bool
    ) -> None:
        self.root = root
        self.files = {path: _File(size) for path, size in files.items()}
        self.errors: dict[tuple[str, str], None] = {}
        self.unproven: dict[str, str] = {}
        self.missing: dict[str, _File] = {}
        """Expected files that do not exist."""
        self.kept: dict[str, bytes] = {}
        """For files that differ or are missing, the state after the last verification, packed."""
        self.torch = self.no_torch = ""
        self._may_write = may_write
        self._progress = progress
        self._total = sum(files.values())
        self._done = 0
        self._latest = ""
        self._guard = threading.Lock()
        self._since = ""
        """Time of the last verification, as text."""

    def wrong(self, path: str, reason: str) -> None:
        """Record an error."""
        self.errors[path, reason] = None

    def expect(self, brought: Brought, renew: bool) -> None:
        """Record the expected hash of each file.

        The most reliable source is read first and counts.
        """
        for path, reason in brought.missing:
            self.wrong(path, f"it was not pulled: {reason}")
        for name, sha256 in brought.files.items():
            self._wanted(name, sha256, "pull")
        brought.files.clear()
        for path in [
            path for path in self.files if path.rpartition("/")[2] == verified_record.MANIFEST
        ]:
            try:
                copied = verified_record.expected_by_manifest(
                    self.root / path, path.rpartition("/")[0]
                )
            except (ValueError, OSError) as error:
                self.wrong(path, str(error))
                continue
            for name, sha256 in copied.items():
                self._wanted(name, sha256, "manifest")
        try:
            last = (
                verified_record.files_before(self.root) if self._may_write and not renew else None
            )
            if last is not None:
                self._since = moment(last[0])
                for entry in last[1]:
                    row = self._wanted(
                        verified_record.named_copy(entry.path), entry.sha256, "before"
                    )
                    row.before = _packed(entry.sha256, entry.stamp, entry.proof)
        except (ValueError, OSError) as error:
            self.wrong(
                ".",
                f"the last verification record is invalid ({error}); --renew ignores it",
            )

    def _wanted(self, path: str, sha256: str, by: str) -> _File:
        row = self.files.get(path) or self.missing.setdefault(path, _File(0))
        if not row.by:
            row.wanted, row.by = sha256, by
        return row

    def examine(self, plan: directory_contents.Plan, with_torch: bool) -> dict[Job, dict[str, Any]]:
        """Send every job to the examining processes."""
        jobs = [job for group in plan.groups for job in group.jobs] + list(plan.others)
        answers: dict[Job, dict[str, Any]] = {}
        with examiner() as asked:
            for job in jobs:
                answers[job] = self._ask(asked, job) or _NOTHING
                self.report(job.path)
        loadable = [
            job
            for job, answer in answers.items()
            if job.kind == "torch" and not answer.get("trouble") and not answer.get("not_loadable")
        ]
        if loadable and with_torch:
            self._load(loadable, answers)
        elif loadable:
            self.no_torch = "it was not asked for"
        return answers

    def _ask(self, asked: Asked, job: Job) -> dict[str, Any]:
        try:
            return asked.ask({"kind": job.kind, "path": str(self.root / job.path)}, self._size(job))
        except Ended as ended:
            return {"trouble": [["", str(ended)]]}

    def _load(self, jobs: list[Job], answers: dict[Job, dict[str, Any]]) -> None:
        if not has_torch():
            self.no_torch = "torch is not installed next to rgt"
            return
        with loader() as asked:
            for job in jobs:
                try:
                    asked.start()
                    self.no_torch = str(asked.greeting.get("missing", ""))
                    if self.no_torch:
                        return
                    self.torch = str(asked.greeting.get("torch", ""))
                    question = {
                        "path": str(self.root / job.path),
                        "legacy": bool(answers[job].get("legacy")),
                    }
                    answer = asked.ask(question, self._size(job))
                except Ended as ended:
                    answer = {"trouble": str(ended)}
                if answer.get("trouble"):
                    answers[job]["trouble"] = [["", str(answer["trouble"])]]
                else:
                    answers[job]["loaded"] = True

    def _size(self, job: Job) -> int:
        if job.path in self.files:
            return self.files[job.path].size
        return sum(row.size for path, row in self.files.items() if _folder(path) == job.path)

    def hash(self, path: str) -> None:
        """Record the hash and stamp of a file; called in threads.

        Raises:
            OSError: it cannot be read, or changed meanwhile.
        """
        row = self.files[path]
        try:
            row.now = _packed(*sha256_of(self.root / path))
        finally:
            with self._guard:
                self._done += row.size
                self._latest = path

    def report(self, path: str = "") -> None:
        """Report the progress."""
        if self._progress is not None:
            self._progress(self._done, self._total, path or self._latest)

    def compare(self) -> None:
        """Compare the hashes with the expected ones."""
        for path, row in self.files.items():
            sha256, stamp, _ = _unpacked(row.now) if row.now else ("", None, "")
            if row.by:
                wanted = Expected(row.wanted, row.by, self._since)
                reason = (
                    verified_record.why_wrong(wanted, sha256) if row.now else "it cannot be read"
                )
                if reason is None:
                    row.proof = row.by
                else:
                    self._differs(path, row, reason)
            if row.now and stamp != self._stamp(path):
                self.wrong(path, "it changed while it was looked at")
        for path, row in self.missing.items():
            self._differs(
                path, row, verified_record.why_missing(Expected(row.wanted, row.by, self._since))
            )

    def _differs(self, path: str, row: _File, reason: str) -> None:
        self.wrong(path, reason)
        if row.before:
            self.kept[path] = row.before

    def _stamp(self, path: str) -> Stamp | None:
        try:
            return Stamp.of(os.lstat(f"{self.root}/{path}"))
        except OSError:
            return None

    def judge(
        self, plan: directory_contents.Plan, answers: Mapping[Job, Mapping[str, Any]]
    ) -> None:
        """Record the results of the answers."""
        for job, answer in answers.items():
            for name, reason in answer.get("trouble", ()):
                path = (
                    _join(job.path, name)
                    if job.kind in ("trainer", "dcp")
                    else _beside(job.path, name)
                )
                if job.kind in _LOGS and self._proof(path) in ("pull", "manifest"):
                    self.unproven[path] = f"so it came from the box: {reason}"
                else:
                    self.wrong(path, reason)
            if answer.get("trouble"):
                continue
            covers = [_join(job.path, name) for name in answer.get("covers", ())]
            for path in [
                *covers,
                *([job.path] if answer.get("checked") and job.path in self.files else []),
            ]:
                if path in self.files and not self.files[path].proof:
                    self.files[path].proof = "checksums"
            self._say_unproven(job, answer)
        for path in plan.left_over:
            before, parts, _ = path.partition(PARTS)
            if parts:
                self.wrong(before + parts, "it has unfinished copies: rgt pull resumes them")
                continue
            self.unproven[path] = (
                "it is in a directory that was being written, replaced or set aside: no checkpoint"
            )

    def _say_unproven(self, job: Job, answer: Mapping[str, Any]) -> None:
        if answer.get("not_loadable"):
            names = ", ".join(answer["not_loadable"][:3])
            why = "it was checked, but not loaded: torch's weights_only loading does not accept"
            self.unproven[job.path] = f"{why} {names}"
        elif answer.get("not_checked"):
            self.unproven[job.path] = f"not checked: {answer['not_checked']}"
        elif job.kind == "dcp":
            path = _join(job.path, dcp_files.METADATA)
            if not self._proven(path):
                self.unproven[path] = _WHY["metadata"]
        elif not answer.get("checked") and not self._proven(job.path):
            why = "legacy" if answer.get("legacy") else job.kind
            if why in _WHY:
                self.unproven[job.path] = _WHY[why]

    def _proven(self, path: str) -> bool:
        """Return whether a source confirms a file's content, other than its being unchanged."""
        return self._proof(path) not in ("", "before")

    def _proof(self, path: str) -> str:
        if path in self.files:
            return self.files[path].proof
        return ""

    def whole(
        self, plan: directory_contents.Plan, answers: Mapping[Job, Mapping[str, Any]]
    ) -> tuple[CheckpointFound, ...]:
        """Return the checkpoints without an error."""
        bad = {path for path, _ in self.errors}
        folders = {_folder(path) for path in bad}
        found = []
        for group in plan.groups:
            of_folder = group.path not in self.files
            if (of_folder and group.path in folders) or any(
                job.path in bad or answers[job].get("trouble") for job in group.jobs
            ):
                continue
            found.append(
                CheckpointFound(
                    path=said(group.path), kind=group.kind, how=self._how(group, answers)
                )
            )
        return tuple(found)

    def _how(self, group: Group, answers: Mapping[Job, Mapping[str, Any]]) -> str:
        torch = [job for job in group.jobs if job.kind == "torch"]
        if torch and all(answers[job].get("loaded") for job in torch):
            return f"loaded by torch {self.torch}"
        if all(answers[job].get("checked") for job in group.jobs):
            return "every byte against its checksums"
        if any(job.kind == "dcp" for job in group.jobs):
            return "every part against its checksums"
        return "its structure"

    def finish(self, whole: tuple[CheckpointFound, ...]) -> Verification:
        """Write the result to the directory and return it."""
        bad = {path for path, _ in self.errors}
        good = [path for path, row in self.files.items() if row.now and path not in bad]
        result = Verification(
            ok=not self.errors,
            directory=said(str(self.root)),
            files=len(self.files),
            bytes=self._total,
            errors=tuple(
                Problem(path=said(path), reason=clean(reason)) for path, reason in self.errors
            ),
            unproven=tuple(
                Problem(path=said(path), reason=clean(why))
                for path, why in sorted(self.unproven.items())
            ),
            checkpoints=whole,
            only_hashed=sum(
                not self._proven(path) and path not in self.unproven and path not in bad
                for path in self.files
            ),
            torch=self.torch,
            no_torch=self.no_torch,
            at=time.time(),
            version=rgt_tui.__version__,
        )
        try:
            if self._may_write:
                verified_record.write(self.root, result, self._entries([*good, *self.kept]))
        except OSError as error:
            problem = Problem(
                path=verified_record.VERIFIED,
                reason=f"it cannot be written: {error.strerror or error}",
            )
            result = msgspec.structs.replace(result, ok=False, errors=(*result.errors, problem))
        return result

    def _entries(self, paths: list[str]) -> Iterator[VerifiedFile]:
        """Yield the records of these files, sorted by name."""
        for path in sorted(paths, key=said):
            before = self.kept.get(path)
            sha256, stamp, proof = _unpacked(self.files[path].now if before is None else before)
            proof = self.files[path].proof if before is None else proof
            yield VerifiedFile(path=said(path), sha256=sha256, stamp=stamp, proof=proof)


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _join(folder: str, name: str) -> str:
    return "/".join(part for part in (folder, name) if part not in ("", "."))


def _beside(path: str, name: str) -> str:
    if name:
        return _join(_folder(path), name)
    return path
