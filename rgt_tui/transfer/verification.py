"""Verifies a directory of results: every file hashed, every checkpoint looked at, nothing in it ever run.

Three things are asked of each file: is it there and the right one (by the pull, a manifest, or the last time), is it
whole (by its own structure and checksums), and does it load (by torch, where torch is there).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

import rgt_tui
from rgt_tui.model.plain import clean
from rgt_tui.profiles.readings import how_many
from rgt_tui.transfer import (
    checkpoint_groups,
    dcp_files,
    directory_listing,
    expected_content,
    verified_record,
)
from rgt_tui.transfer.checkpoint_groups import Group, Job
from rgt_tui.transfer.copying.box_listing import PARTS
from rgt_tui.transfer.directory_listing import Listed
from rgt_tui.transfer.examining import Asked, Ended, examiner, has_torch, loader
from rgt_tui.transfer.expected_content import Expected
from rgt_tui.transfer.ledger import FileRow, FolderRow, Stamp, said, sha256_of
from rgt_tui.transfer.verified_record import CheckpointFound, Problem, Verification, VerifiedFile

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and the file that was finished."""
_THREADS = 4
_LOGS = ("events", "lines", "json")
_WHY = {
    "safetensors": "its offsets are right, its content cannot be proven: the format has no checksums",
    "legacy": "its lengths are right, its content cannot be proven: files of before torch 1.6 have no checksums",
    "gguf": "its tensors lie where it says, their content cannot be proven: the format has no checksums",
    "npy": "its length is right, its content cannot be proven: the format has no checksums",
    "hdf5": "its length is what its superblock says, it was not looked into further",
    "pickle": "it was looked at, not loaded; its content cannot be proven: a pickle has no checksums",
    "metadata": "it fits the parts that it names, its content cannot be proven: the format has no checksums",
}


class NotVerifiable(Exception):
    """A directory cannot be looked at; the message names it and says why."""


def verify(
    directory: Path,
    expect: int | None = None,
    *,
    pulled: Iterable[FileRow | FolderRow] = (),
    renew: bool = False,
    with_torch: bool = True,
    progress: Progress | None = None,
) -> Verification:
    """Look at everything in a directory, write what was found into it, and return it. It blocks.

    Args:
        directory: It.
        expect: How many whole checkpoints there must be, at least.
        pulled: Rows of the ledger: files that belong into the directory must be there, with the hashes that the box
            told, and what a pull of a directory could not bring is an error.
        renew: Whether what the last verification found no longer counts.
        with_torch: Whether to load files of torch.save with torch, where it is installed.
        progress: What to call while it goes on, in this thread.

    Raises:
        NotVerifiable: it is no directory, or cannot be listed.
    """
    root = Path(os.path.abspath(directory))  # noqa: PTH100
    pulled = tuple(pulled)
    came = verified_record.RECORDS & set(expected_content.of_ledger(root, pulled))
    try:
        found = directory_listing.listing(root, verified_record.RECORDS - came)
    except OSError as error:
        raise NotVerifiable(f"cannot look into {directory}: {error.strerror or error}") from error
    work = _Work(root, found.files, progress, may_write=not came)
    for path in came:
        work.wrong(path, "it came from the box, and has the name of what a verification leaves: move it away")
    for path, reason in found.problems:
        work.wrong(path, reason)
    expected = work.expected(pulled, renew)
    plan = checkpoint_groups.plan(dict(directory_listing.heads(found.files)))
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rgt-hash")
    try:
        hashes = {path: pool.submit(work.hash, path) for path in found.files}
        answers = work.examine(plan, with_torch)
        work.collect(hashes)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever interrupts it waits for no file
    work.compare(expected)
    work.judge(plan, answers)
    if not found.files:
        work.wrong(".", "there is no file in it")
    whole = work.whole(plan, answers)
    if expect is not None and len(whole) < expect:
        work.wrong(".", f"it has {how_many(len(whole), 'whole checkpoint')}, expected: {expect}")
    return work.finish(whole)


class _Work:
    """What is known so far about the files of a directory."""

    def __init__(
        self, root: Path, files: Mapping[str, Listed], progress: Progress | None, may_write: bool
    ) -> None:
        self.root = root
        self.files = files
        self.errors: dict[tuple[str, str], None] = {}
        self.unproven: dict[str, str] = {}
        self.hashed: dict[str, tuple[str, Stamp]] = {}
        self.proof: dict[str, str] = {}
        self.kept: dict[str, VerifiedFile] = {}
        """What should have been there instead of what is."""
        self.torch = self.no_torch = ""
        self._may_write = may_write
        self._progress = progress
        self._total = sum(listed.size for listed in files.values())
        self._done = 0
        self._guard = threading.Lock()
        self._last: Verification | None = None

    def wrong(self, path: str, reason: str) -> None:
        """Note an error."""
        self.errors[path, reason] = None

    def expected(self, pulled: Iterable[FileRow | FolderRow], renew: bool) -> dict[str, Expected]:
        """Return what each file should be; who knows best counts."""
        found: dict[str, Expected] = {}
        try:
            self._last = verified_record.read(self.root) if self._may_write and not renew else None
        except (ValueError, OSError) as error:
            self.wrong(
                ".", f"what the last verification left cannot be used ({error}); --renew goes without it"
            )
        if self._last is not None:
            found |= expected_content.of_record(self._last)
        for path, listed in self.files.items():
            folder, _, name = path.rpartition("/")
            if name == expected_content.MANIFEST:
                try:
                    found |= expected_content.of_manifest(listed.path, folder)
                except (ValueError, OSError) as error:
                    self.wrong(path, str(error))
        for path, reason in expected_content.not_pulled(self.root, pulled):
            self.wrong(path, f"it was not pulled: {reason}")
        return found | expected_content.of_ledger(self.root, pulled)

    def examine(self, plan: checkpoint_groups.Plan, with_torch: bool) -> dict[Job, dict[str, Any]]:
        """Ask the processes about every job."""
        jobs = [job for group in plan.groups for job in group.jobs] + list(plan.others)
        answers: dict[Job, dict[str, Any]] = {}
        with examiner() as asked:
            for job in jobs:
                answers[job] = self._ask(asked, job)
                self._report(job.path)
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
            return asked.ask({"kind": job.kind, "path": str(self._place(job))}, self._size(job))
        except Ended as ended:
            return {"trouble": [["", str(ended)]]}

    def _load(self, jobs: list[Job], answers: dict[Job, dict[str, Any]]) -> None:
        if not has_torch():
            self.no_torch = "torch is not installed beside rgt"
            return
        with loader() as asked:
            for job in jobs:
                try:
                    asked.start()
                    self.no_torch = str(asked.greeting.get("missing", ""))
                    if self.no_torch:
                        return
                    self.torch = str(asked.greeting.get("torch", ""))
                    question = {"path": str(self._place(job)), "legacy": bool(answers[job].get("legacy"))}
                    answer = asked.ask(question, self._size(job))
                except Ended as ended:
                    answer = {"trouble": str(ended)}
                if answer.get("trouble"):
                    answers[job]["trouble"] = [["", str(answer["trouble"])]]
                else:
                    answers[job]["loaded"] = True

    def _place(self, job: Job) -> Path:
        return self.files[job.path].path if job.path in self.files else self.root / job.path

    def _size(self, job: Job) -> int:
        if job.path in self.files:
            return self.files[job.path].size
        return sum(listed.size for path, listed in self.files.items() if _folder(path) == job.path)

    def hash(self, path: str) -> tuple[str, Stamp]:
        """Return the hash of a file, and the stamp that it had; called in threads."""
        try:
            return sha256_of(self.files[path].path)
        finally:
            with self._guard:
                self._done += self.files[path].size

    def _report(self, path: str) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, path)

    def collect(self, hashes: Mapping[str, Future[tuple[str, Stamp]]]) -> None:
        """Wait for the hashes."""
        for path, future in hashes.items():
            try:
                self.hashed[path] = future.result()
            except OSError as error:
                self.wrong(path, f"it cannot be read: {error.strerror or error}")
            self._report(path)

    def compare(self, expected: Mapping[str, Expected]) -> None:
        """Compare the hashes with what they should be."""
        last = (
            {}
            if self._last is None
            else {expected_content.named(entry.path): entry for entry in self._last.entries}
        )
        for path, wanted in expected.items():
            if path not in self.files:
                reason: str | None = expected_content.missing(wanted)
            elif path in self.hashed:
                reason = expected_content.wrong(wanted, self.hashed[path][0])
            else:
                reason = "it cannot be read"
            if reason is None:
                self.proof[path] = wanted.by
                continue
            self.wrong(path, reason)
            if path in last:
                self.kept[path] = last[path]
        for path, (_, stamp) in self.hashed.items():
            try:
                now: Stamp | None = Stamp.of(self.files[path].path.lstat())
            except OSError:
                now = None
            if now != stamp:
                self.wrong(path, "it changed while it was looked at")

    def judge(self, plan: checkpoint_groups.Plan, answers: Mapping[Job, Mapping[str, Any]]) -> None:
        """Note what the answers say."""
        for job, answer in answers.items():
            for name, reason in answer.get("trouble", ()):
                path = _join(job.path, name) if job.kind in ("trainer", "dcp") else _beside(job.path, name)
                if job.kind in _LOGS and self.proof.get(path) in ("pull", "manifest"):
                    self.unproven[path] = f"so it came from the box: {reason}"
                else:
                    self.wrong(path, reason)
            if answer.get("trouble"):
                continue
            covers = [_join(job.path, name) for name in answer.get("covers", ())]
            for path in [*covers, *([job.path] if answer.get("checked") and job.path in self.files else [])]:
                self.proof.setdefault(path, "checksums")
            self._say_unproven(job, answer)
        for path in plan.left_over:
            before, parts, _ = path.partition(PARTS)
            if parts:
                self.wrong(
                    before + parts, "copies that are not finished lie in it: rgt pull goes on with them"
                )
                continue
            self.unproven[path] = (
                "it lies in a directory that was being written, replaced or set aside: no checkpoint"
            )

    def _say_unproven(self, job: Job, answer: Mapping[str, Any]) -> None:
        if answer.get("not_loadable"):
            names = ", ".join(answer["not_loadable"][:3])
            why = "it was looked at, but not loaded: torch's weights_only loading does not take"
            self.unproven[job.path] = f"{why} {names}"
        elif answer.get("not_checked"):
            self.unproven[job.path] = f"not looked into: {answer['not_checked']}"
        elif job.kind == "dcp":
            path = _join(job.path, dcp_files.METADATA)
            if not self._proven(path):
                self.unproven[path] = _WHY["metadata"]
        elif not self._proven(job.path):
            why = "legacy" if answer.get("legacy") else job.kind
            if why in _WHY:
                self.unproven[job.path] = _WHY[why]

    def _proven(self, path: str) -> bool:
        """Say whether something says what a file should hold, other than that it did not change."""
        return self.proof.get(path) not in (None, "before")

    def whole(
        self, plan: checkpoint_groups.Plan, answers: Mapping[Job, Mapping[str, Any]]
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
                CheckpointFound(path=said(group.path), kind=group.kind, how=self._how(group, answers))
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
        """Write it all down."""
        bad = {path for path, _ in self.errors}
        entries = [
            VerifiedFile(path=said(path), sha256=digest, stamp=stamp, proof=self.proof.get(path, ""))
            for path, (digest, stamp) in self.hashed.items()
            if path not in bad
        ]
        known = {path for path in self.proof if self._proven(path)} | set(self.unproven) | bad
        result = Verification(
            ok=not self.errors,
            directory=said(str(self.root)),
            files=len(self.files),
            bytes=sum(listed.size for listed in self.files.values()),
            errors=tuple(Problem(path=said(path), reason=clean(reason)) for path, reason in self.errors),
            unproven=tuple(
                Problem(path=said(path), reason=clean(why)) for path, why in sorted(self.unproven.items())
            ),
            checkpoints=whole,
            only_hashed=sum(path not in known for path in self.files),
            torch=self.torch,
            no_torch=self.no_torch,
            at=time.time(),
            version=rgt_tui.__version__,
            entries=tuple(sorted([*entries, *self.kept.values()], key=lambda entry: entry.path)),
        )
        try:
            if self._may_write:
                verified_record.write(self.root, result)
        except OSError as error:
            problem = Problem(
                path=verified_record.VERIFIED, reason=f"it cannot be written: {error.strerror or error}"
            )
            result = msgspec.structs.replace(result, ok=False, errors=(*result.errors, problem))
        return result


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _join(folder: str, name: str) -> str:
    return "/".join(part for part in (folder, name) if part not in ("", "."))


def _beside(path: str, name: str) -> str:
    return _join(_folder(path), name) if name else path
