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
from rgt_tui.language import english_texts
from rgt_tui.model import clean_text, how_many, moment
from rgt_tui.transfer import directory_contents, torch_files, tracker_files, verified_record
from rgt_tui.transfer.copying.box_listing import PARTS
from rgt_tui.transfer.directory_contents import CheckpointGroup, ExamineJob, join_path
from rgt_tui.transfer.examining import (
    ChildEnded,
    ExamineProcess,
    has_torch,
    open_examiner,
    open_loader,
)
from rgt_tui.transfer.ledger import CopiedFile, FileStamp, FolderRow, encode_path, sha256_of
from rgt_tui.transfer.verified_record import (
    CheckpointFound,
    ExpectedFile,
    FileProblem,
    PulledFiles,
    Verification,
    VerifiedFile,
)

Progress = Callable[[int, int, str], None]
"""Called with bytes done, total bytes, and the file that was finished."""
_NOTHING: dict[str, Any] = {}
"""The answer about most files: nothing to report."""
_LOGS = ("events", "lines", "json")
_WHY = {
    "safetensors": (
        "its offsets are right, its content cannot be proven: the format has no checksums"
    ),
    "legacy": (
        "its lengths are right, its content cannot be proven: files from before torch 1.6 "
        "have no checksums"
    ),
    "torch": "its lengths are right, its content cannot be proven: it was saved without checksums",
    "gguf": (
        "its tensors are at the stated positions, their content cannot be proven: the format "
        "has no checksums"
    ),
    "npy": "its length is right, its content cannot be proven: the format has no checksums",
    "hdf5": "its length matches its superblock, its content was not checked",
    "pickle": "it was checked, not loaded; its content cannot be proven: a pickle has no checksums",
    "metadata": (
        "it fits the parts that it names, its content cannot be proven: the format has no checksums"
    ),
}


class NotVerifiable(Exception):
    """A directory cannot be verified; the message has its name and the reason."""


# The reasons are recorded.
@english_texts()
def verify_directory(
    directory: Path,
    expect: int | None = None,
    *,
    pulled: Iterable[CopiedFile | FolderRow] = (),
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
    # A record that came from the box was written by the box: it must not vouch for anything.
    came = verified_record.RECORDS & set(brought.files)
    try:
        files, problems = directory_contents.list_directory(root, verified_record.RECORDS - came)
    except OSError as error:
        raise NotVerifiable(f"cannot read {directory}: {error.strerror or error}") from error
    work = _VerificationWork(root, files, progress, may_write=not came)
    # Hundreds of thousands of entries, which the work has in its own form now.
    del files
    for path in came:
        work.add_error(
            path,
            "it came from the box with the name of rgt's verification record: move it away",
        )
    for path, reason in problems:
        work.add_error(path, reason)
    work.set_expected(brought, renew)
    del brought
    sizes = ((path, row.size) for path, row in work.files.items())
    heads = dict(directory_contents.read_heads(root, sizes))
    texts = tracker_files.read_trackers(root, work.files)
    plan = directory_contents.plan_examination(heads, texts)
    del heads
    # Started first: the disk is read while the examiners parse.
    hashing = _HashThreads(work)
    try:
        answers = work.run_examiners(plan, with_torch)
        hashing.wait_for_hashes()
    finally:
        # Also after an interrupt: daemon threads would read on until the process ends.
        hashing.stop()
    work.compare_hashes()
    work.judge_answers(plan, answers)
    work.judge_saves(plan, answers, texts)
    # An empty directory must not pass: usually the name was wrong.
    if not work.files:
        work.add_error(".", "there is no file in it")
    whole = work.complete_checkpoints(plan, answers)
    if expect is not None and len(whole) < expect:
        work.add_error(
            ".", f"it has {how_many(len(whole), 'complete checkpoint')}, expected: {expect}"
        )
    return work.write_result(whole)


class _FileState(msgspec.Struct, gc=False):
    """The current knowledge about a file; packed, as there may be hundreds of thousands."""

    size: int
    wanted: str = ""
    """The expected SHA-256; empty = unknown."""
    by: str = ""
    """Source of the expected hash, as `ExpectedFile.by`."""
    proof: str = ""
    """What proves that its bytes are right, as `VerifiedFile.proof`."""
    before: bytes = b""
    """The state after the last verification, packed."""
    now: bytes = b""
    """The current state, packed; empty = it was not read."""


def _pack_hash(sha256: str, stamp: FileStamp, proof: str = "") -> bytes:
    return msgspec.msgpack.encode((sha256, stamp, proof))


_unpacked = msgspec.msgpack.Decoder(tuple[str, FileStamp, str]).decode


class _HashThreads:
    """Hashes all files of a directory in daemon threads, so that an interrupt need not wait."""

    def __init__(self, work: _VerificationWork) -> None:
        self._work = work
        self._paths = iter(work.files)
        self._guard = threading.Lock()
        self._stopped = False
        self._fault: BaseException | None = None
        self._troubles: dict[str, str] = {}
        threads = 4
        self._threads = [
            threading.Thread(target=self._hash_files, name=f"rgt-hash-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _hash_files(self) -> None:
        try:
            while not self._stopped and (path := self._next_path()) is not None:
                try:
                    self._work.hash_file(path)
                except OSError as error:
                    self._troubles[path] = f"it cannot be read: {error.strerror or error}"
        except BaseException as fault:
            # One fault of ours stops all threads; the caller raises it.
            self._fault, self._stopped = fault, True

    def _next_path(self) -> str | None:
        with self._guard:
            # Under the lock: an iterator is not safe for several threads.
            return next(self._paths, None)

    def wait_for_hashes(self) -> None:
        """Wait until all are hashed, and record read errors."""
        # Seconds between two progress reports while only hashing remains.
        look_s = 0.2
        for thread in self._threads:
            while thread.is_alive():
                thread.join(look_s)
                self._work.report_progress()
        if self._fault is not None:
            raise self._fault
        # In the order of the files, not in that in which the threads met them.
        for path in self._work.files if self._troubles else ():
            if path in self._troubles:
                self._work.add_error(path, self._troubles[path])

    def stop(self) -> None:
        """Make each thread stop after its current file."""
        self._stopped = True


class _VerificationWork:
    """What is known so far about the files of a directory."""

    def __init__(
        self, root: Path, files: Mapping[str, int], progress: Progress | None, may_write: bool
    ) -> None:
        self.root = root
        self.files = {path: _FileState(size) for path, size in files.items()}
        self.errors: dict[tuple[str, str], None] = {}
        self.unproven: dict[str, str] = {}
        self.missing: dict[str, _FileState] = {}
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

    def add_error(self, path: str, reason: str) -> None:
        """Record an error."""
        self.errors[path, reason] = None

    def set_expected(self, brought: PulledFiles, renew: bool) -> None:
        """Record the expected hash of each file.

        The most reliable source is read first and counts.
        """
        for path, reason in brought.missing:
            self.add_error(path, f"it was not pulled: {reason}")
        for name, sha256 in brought.files.items():
            self._set_wanted(name, sha256, "pull")
        # There may be hundreds of thousands, which `self.files` has by now.
        brought.files.clear()
        for path in [
            path for path in self.files if path.rpartition("/")[2] == verified_record.MANIFEST
        ]:
            try:
                copied = verified_record.expected_by_manifest(
                    self.root / path, path.rpartition("/")[0]
                )
            except (ValueError, OSError) as error:
                self.add_error(path, str(error))
                continue
            for name, sha256 in copied.items():
                self._set_wanted(name, sha256, "manifest")
        try:
            if self._may_write and not renew:
                last = verified_record.files_before(self.root)
            else:
                last = None
            if last is not None:
                self._since = moment(last[0])
                for entry in last[1]:
                    row = self._set_wanted(
                        verified_record.named_copy(entry.path), entry.sha256, "before"
                    )
                    row.before = _pack_hash(entry.sha256, entry.stamp, entry.proof)
        except (ValueError, OSError) as error:
            self.add_error(
                ".",
                f"the last verification record is invalid ({error}); --renew ignores it",
            )

    def _set_wanted(self, path: str, sha256: str, by: str) -> _FileState:
        row = self.files.get(path) or self.missing.setdefault(path, _FileState(0))
        # The first source that names a file counts, and they are read from the most reliable on.
        if not row.by:
            row.wanted, row.by = sha256, by
        return row

    def run_examiners(
        self, plan: directory_contents.ExaminationPlan, with_torch: bool
    ) -> dict[ExamineJob, dict[str, Any]]:
        """Send every job to the examining processes."""
        jobs = [job for group in plan.groups for job in group.jobs] + list(plan.others)
        answers: dict[ExamineJob, dict[str, Any]] = {}
        with open_examiner() as asked:
            for job in jobs:
                answers[job] = self._query_examiner(asked, job) or _NOTHING
                self.report_progress(job.path)
        loadable = [
            job
            for job, answer in answers.items()
            if job.kind == "torch" and not answer.get("trouble") and not answer.get("not_loadable")
        ]
        if loadable and with_torch:
            self._load_with_torch(loadable, answers)
        elif loadable:
            self.no_torch = "it was not asked for"
        return answers

    def _query_examiner(self, asked: ExamineProcess, job: ExamineJob) -> dict[str, Any]:
        try:
            return asked.send_question(
                {"kind": job.kind, "path": str(self.root / job.path)}, self._job_bytes(job)
            )
        except ChildEnded as ended:
            # A file that kills the examiner is reported like any other fault.
            return {"trouble": [["", str(ended)]]}

    def _load_with_torch(
        self, jobs: list[ExamineJob], answers: dict[ExamineJob, dict[str, Any]]
    ) -> None:
        if not has_torch():
            self.no_torch = "torch is not installed next to rgt"
            return
        with open_loader() as asked:
            for job in jobs:
                try:
                    # For each file: after a file that ended the loader, it must run again.
                    asked.start()
                    self.no_torch = str(asked.greeting.get("missing", ""))
                    if self.no_torch:
                        return
                    self.torch = str(asked.greeting.get("torch", ""))
                    question = {
                        "path": str(self.root / job.path),
                        "legacy": bool(answers[job].get("legacy")),
                    }
                    answer = asked.send_question(question, self._job_bytes(job))
                except ChildEnded as ended:
                    answer = {"trouble": str(ended)}
                if answer.get("trouble"):
                    answers[job]["trouble"] = [["", str(answer["trouble"])]]
                else:
                    answers[job]["loaded"] = True

    def _job_bytes(self, job: ExamineJob) -> int:
        if job.path in self.files:
            return self.files[job.path].size
        return sum(row.size for path, row in self.files.items() if _parent_folder(path) == job.path)

    def hash_file(self, path: str) -> None:
        """Record the hash and stamp of a file; called in threads.

        Raises:
            OSError: it cannot be read, or changed meanwhile.
        """
        row = self.files[path]
        try:
            row.now = _pack_hash(*sha256_of(self.root / path))
        finally:
            with self._guard:
                self._done += row.size
                self._latest = path

    def report_progress(self, path: str = "") -> None:
        """Report the progress."""
        if self._progress is not None:
            self._progress(self._done, self._total, path or self._latest)

    def compare_hashes(self) -> None:
        """Compare the hashes with the expected ones."""
        for path, row in self.files.items():
            sha256, stamp, _ = _unpacked(row.now) if row.now else ("", None, "")
            if row.by:
                wanted = ExpectedFile(row.wanted, row.by, self._since)
                if row.now:
                    reason = verified_record.why_wrong(wanted, sha256)
                else:
                    reason = "it cannot be read"
                if reason is None:
                    row.proof = row.by
                else:
                    self._add_difference(path, row, reason)
            # Hashes and examiners read it at different times; only an unchanged file was seen by
            # both.
            if row.now and stamp != self._read_stamp(path):
                self.add_error(path, "it changed while it was looked at")
        for path, row in self.missing.items():
            self._add_difference(
                path,
                row,
                verified_record.why_missing(ExpectedFile(row.wanted, row.by, self._since)),
            )

    def _add_difference(self, path: str, row: _FileState, reason: str) -> None:
        self.add_error(path, reason)
        # Kept in the record, so that the next verification reports the difference again.
        if row.before:
            self.kept[path] = row.before

    def _read_stamp(self, path: str) -> FileStamp | None:
        try:
            return FileStamp.from_stat(os.lstat(f"{self.root}/{path}"))
        except OSError:
            return None

    def judge_answers(
        self,
        plan: directory_contents.ExaminationPlan,
        answers: Mapping[ExamineJob, Mapping[str, Any]],
    ) -> None:
        """Record the results of the answers."""
        for job, answer in answers.items():
            for name, reason in answer.get("trouble", ()):
                if job.kind in ("trainer", "dcp"):
                    path = join_path(job.path, name)
                else:
                    path = _sibling_path(job.path, name)
                # A log may be torn on the box already, after a crash there: the copy is not at
                # fault.
                if job.kind in _LOGS and self._proof_source(path) in ("pull", "manifest"):
                    self.unproven[path] = f"so it came from the box: {reason}"
                else:
                    self.add_error(path, reason)
            if answer.get("trouble"):
                continue
            covers = [join_path(job.path, name) for name in answer.get("covers", ())]
            for path in [
                *covers,
                *([job.path] if answer.get("checked") and job.path in self.files else []),
            ]:
                # An expected hash is the stronger proof, because a box can compute new checksums.
                if path in self.files and not self.files[path].proof:
                    self.files[path].proof = "checksums"
            self._say_unproven(job, answer)
        for path in plan.left_over:
            before, parts, _ = path.partition(PARTS)
            if parts:
                self.add_error(before + parts, "it has unfinished copies: rgt pull resumes them")
                continue
            self.unproven[path] = (
                "it is in a directory that was being written, replaced or set aside: no checkpoint"
            )

    def judge_saves(
        self,
        plan: directory_contents.ExaminationPlan,
        answers: Mapping[ExamineJob, Mapping[str, Any]],
        texts: Mapping[str, str],
    ) -> None:
        """Record which saves were cut off, and which files name checkpoints that are not here."""
        errors = tracker_files.find_cut_checkpoints(plan.found, self.files)
        said = {job.path: answer for job, answer in answers.items()}
        errors += tracker_files.find_missing_ranks(said, self.files)
        of_trackers, notes = tracker_files.find_tracker_faults(
            self.root, texts, plan.found, self.files
        )
        for path, reason in errors + of_trackers:
            self.add_error(path, reason)
        bad = {path for path, _ in self.errors}
        for one in plan.found:
            if one.unfinished and not any(
                path == one.path or path.startswith(f"{one.path}/") for path in bad
            ):
                notes.append((one.path, f"no complete checkpoint: {one.unfinished}"))
        sizes = {path: row.size for path, row in self.files.items()}
        notes += tracker_files.find_missing_best(self.root, sizes)
        self.unproven.update(notes)

    def _say_unproven(self, job: ExamineJob, answer: Mapping[str, Any]) -> None:
        if answer.get("not_loadable"):
            names = ", ".join(answer["not_loadable"][:3])
            why = "it was checked, but not loaded: torch's weights_only loading does not accept"
            self.unproven[job.path] = f"{why} {names}"
        elif answer.get("not_checked"):
            self.unproven[job.path] = f"not checked: {answer['not_checked']}"
        elif job.kind == "dcp":
            path = join_path(job.path, torch_files.METADATA)
            if not self._is_proven(path):
                self.unproven[path] = _WHY["metadata"]
        elif not answer.get("checked") and not self._is_proven(job.path):
            if answer.get("legacy"):
                why = "legacy"
            else:
                why = job.kind
            if why in _WHY:
                self.unproven[job.path] = _WHY[why]

    def _is_proven(self, path: str) -> bool:
        """Return whether a source confirms a file's content, other than its being unchanged."""
        # "before" proves only that nothing changed since rgt first saw it.
        return self._proof_source(path) not in ("", "before")

    def _proof_source(self, path: str) -> str:
        if path in self.files:
            return self.files[path].proof
        return ""

    def complete_checkpoints(
        self,
        plan: directory_contents.ExaminationPlan,
        answers: Mapping[ExamineJob, Mapping[str, Any]],
    ) -> tuple[CheckpointFound, ...]:
        """Return the checkpoints without an error."""
        bad = {path for path, _ in self.errors}
        folders = {_parent_folder(path) for path in bad}
        unfinished = {
            path for one in plan.found if one.unfinished for path in (one.path, *one.files)
        }
        found = []
        for group in plan.groups:
            of_folder = group.path not in self.files
            if (of_folder and group.path in folders) or any(
                job.path in bad or answers[job].get("trouble") for job in group.jobs
            ):
                continue
            if group.path in bad or {group.path, *(job.path for job in group.jobs)} & unfinished:
                continue
            found.append(
                CheckpointFound(
                    path=encode_path(group.path),
                    kind=group.kind,
                    how=self._describe_check(group, answers),
                )
            )
        return tuple(found)

    def _describe_check(
        self, group: CheckpointGroup, answers: Mapping[ExamineJob, Mapping[str, Any]]
    ) -> str:
        torch = [job for job in group.jobs if job.kind == "torch"]
        if torch and all(answers[job].get("loaded") for job in torch):
            return f"loaded by torch {self.torch}"
        if all(answers[job].get("checked") for job in group.jobs):
            return "every byte against its checksums"
        if any(job.kind == "dcp" for job in group.jobs):
            return "every part against its checksums"
        return "its structure"

    def write_result(self, whole: tuple[CheckpointFound, ...]) -> Verification:
        """Write the result to the directory and return it."""
        bad = {path for path, _ in self.errors}
        good = [path for path, row in self.files.items() if row.now and path not in bad]
        result = Verification(
            ok=not self.errors,
            directory=encode_path(str(self.root)),
            files=len(self.files),
            bytes=self._total,
            errors=tuple(
                FileProblem(path=encode_path(path), reason=clean_text(reason))
                for path, reason in self.errors
            ),
            unproven=tuple(
                FileProblem(path=encode_path(path), reason=clean_text(why))
                for path, why in sorted(self.unproven.items())
            ),
            checkpoints=whole,
            only_hashed=sum(
                not self._is_proven(path) and path not in self.unproven and path not in bad
                for path in self.files
            ),
            torch=self.torch,
            no_torch=self.no_torch,
            at=time.time(),
            version=rgt_tui.__version__,
        )
        try:
            if self._may_write:
                verified_record.write_record(
                    self.root, result, self._iterate_entries([*good, *self.kept])
                )
        except OSError as error:
            problem = FileProblem(
                path=verified_record.VERIFIED,
                reason=f"it cannot be written: {error.strerror or error}",
            )
            result = msgspec.structs.replace(result, ok=False, errors=(*result.errors, problem))
        return result

    def _iterate_entries(self, paths: list[str]) -> Iterator[VerifiedFile]:
        """Yield the records of these files, sorted by name."""
        for path in sorted(paths, key=encode_path):
            before = self.kept.get(path)
            sha256, stamp, proof = _unpacked(self.files[path].now if before is None else before)
            if before is None:
                proof = self.files[path].proof
            yield VerifiedFile(path=encode_path(path), sha256=sha256, stamp=stamp, proof=proof)


def _parent_folder(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _sibling_path(path: str, name: str) -> str:
    if name:
        return join_path(_parent_folder(path), name)
    return path
