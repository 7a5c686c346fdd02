"""Saves a state spread over the ranks, in torch's sharded format, published like any checkpoint.

At a save the training pauses while each rank copies its parts into buffers that are allocated once.
Then a thread on each rank writes its file by ``torch.distributed.checkpoint`` over a separate gloo
group, fsyncs and checksums it; the writer seals the directory when all ranks are done, and
publishes it. One save is in flight at a time. At a load every byte is compared with its checksum
(each rank reads its share of the files) before any rank applies anything.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded

from rgt_train import exits
from rgt_train.checkpoint import manifest, matching
from rgt_train.checkpoint.async_saver import BEST, SaveOutcome, SaveRequest
from rgt_train.checkpoint.diskio import replace_file, write_file
from rgt_train.checkpoint.publish import FULL, CheckpointDraft, free_room
from rgt_train.checkpoint.safetensors import STATE_FILE
from rgt_train.checkpoint.state import RestoredState, RunState
from rgt_train.checkpoint.store import Checkpoint, CheckpointStore, read_space
from rgt_train.exits import RanksError
from rgt_train.ranks import sharded_state
from rgt_train.ranks.dcp_reader import METADATA, SafeReader, tensors_in
from rgt_train.ranks.launch import StateNotTaken, run_on_all_ranks
from rgt_train.ranks.replicated import DesyncChecks


@dataclass(frozen=True)
class RankFailure:
    """Why a rank could not write.

    Attributes:
        number: The errno, if the disk failed.
        text: The message.
        path: The file, as known so far.
        rank: The rank that failed.
    """

    number: int | None
    text: str
    path: str | None
    rank: int

    @classmethod
    def from_error(cls, error: BaseException, rank: int) -> "RankFailure":
        """Describe an error; torch hides a disk error inside its own."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            # torch wraps the OSError of a file in exceptions of its own.
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, OSError):
            return cls(
                cause.errno,
                str(cause.strerror),
                cause.filename and os.fsdecode(cause.filename),
                rank,
            )
        return cls(
            None,
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            None,
            rank,
        )

    def to_exception(self) -> BaseException:
        """Return it as an exception."""
        if self.rank == 0:
            text = self.text
        else:
            text = f"{self.text} (rank {self.rank})"
        if self.number is None:
            return RuntimeError(text)
        if self.path:
            return OSError(self.number, text, self.path)
        return OSError(self.number, text)


class Publisher:
    """Makes one checkpoint of the files that the ranks write.

    Args:
        store: The target.
        request: The requested save.
        needs: Its bytes and inodes.

    Attributes:
        made: The published checkpoint.
        error: Why nothing was published.
        ended: Time of the end, seconds of the monotonic clock.
        notes: Readable lines.
    """

    def __init__(
        self, store: CheckpointStore, request: SaveRequest, needs: tuple[int, int]
    ) -> None:
        self._store = store
        self._request = request
        self._needs = needs
        self._draft: CheckpointDraft | None = None
        self.made: Checkpoint | None = None
        self.error: BaseException | None = None
        self.ended = 0.0
        self.notes: list[str] = []

    def open_draft(self) -> tuple[str, RankFailure | None]:
        """Make room and a directory; return it, or why there is none."""
        try:
            self._draft = CheckpointDraft.create(
                self._store, self._request.kind, self._request.step, *self._needs
            )
            return self._draft.path, None
        except Exception as error:
            self._draft = None
            return "", RankFailure.from_error(error, 0)

    def publish_or_drop(
        self,
        failed: RankFailure | None,
        found: Sequence[tuple[Mapping[str, Any], RankFailure | None]] | None,
    ) -> bool:
        """Publish the files of the ranks, or drop them; return whether to write again."""
        failures = [
            each for each in (failed, *(error for _, error in found or ())) if each is not None
        ]
        if not failures:
            try:
                self._publish_files(
                    {name: facts for each, _ in found or () for name, facts in each.items()}
                )
                return False
            except Exception as error:
                failures = [RankFailure.from_error(error, 0)]
        # A disk error explains the others, which often only follow from it.
        worst = next((each for each in failures if each.number is not None), failures[0])
        if worst.number is None and self._is_full():
            worst = RankFailure(
                errno.ENOSPC, os.strerror(errno.ENOSPC), self._store.root, worst.rank
            )
        if self._draft is not None:
            self._draft.delete_draft()
        if worst.number in FULL:
            note = free_room(self._store, self._request.step, self._request.give_up)
            if note is not None:
                self.notes.append(note)
                return True
        self.error, self.ended = worst.to_exception(), time.monotonic()
        return False

    def _publish_files(self, files: dict[str, Mapping[str, Any]]) -> None:
        assert self._draft is not None, "opened before"
        there = set(os.listdir(self._draft.path))
        # A leftover of a failed attempt would become a part of the checkpoint.
        if there != set(files):
            raise RuntimeError(f"the ranks wrote {sorted(there)}, but reported {sorted(files)}")
        self._draft.seal(files, self._request.about)
        self.made = self._draft.publish()
        self.ended = time.monotonic()
        if self._request.kind == BEST:
            body = (json.dumps(self._request.about["best"]) + "\n").encode()
            replace_file(os.path.join(self._store.out, "best.json"), body)
        else:
            self._store.published(self.made.path, *self._needs)

    def _is_full(self) -> bool:
        """Check the disk if torch has lost the reason."""
        try:
            return read_space(self._store.root).missing_resource(*self._needs) is not None
        except OSError:
            return False


_CLOSE_S = 20.0
"""Seconds that an ending run waits for a save in flight: the ranks it needs may be gone."""
_OVERHEAD = 64 * 1024


@dataclass
class _ShardedSaveInFlight:
    """A save in flight."""

    request: SaveRequest
    tensors: dict[str, torch.Tensor]
    text: bytes
    begun: float
    stall_s: float = 0.0
    thread: threading.Thread | None = None
    outcome: SaveOutcome | None = None


class ShardedPersister:
    """Saves the part of each rank; see `rgt_train.checkpoint.async_saver.Persister`.

    Args:
        store: The target.
        ranks: All ranks, over torch.distributed.
        checks: The desync guard.
        background: Whether the training continues while the files are written.
    """

    def __init__(
        self, store: CheckpointStore, ranks: Any, checks: DesyncChecks, *, background: bool = True
    ) -> None:
        self._store = store
        self._ranks = ranks
        self._checks = checks
        self._background = background
        self._stage = sharded_state.StagingBuffers()
        self._flight: _ShardedSaveInFlight | None = None
        self._last: _ShardedSaveInFlight | None = None
        self._needs = (0, 0)

    @property
    def busy(self) -> bool:
        """Whether a save is in flight."""
        return self._flight is not None

    def needs(self) -> tuple[int, int]:
        """Return the bytes and the inodes of one checkpoint, as known so far."""
        return self._needs

    def prepare(self, state: RunState) -> None:
        """Do nothing: the first save allocates the buffers."""

    def begin_save(self, request: SaveRequest, state: RunState) -> None:
        """Compare the ranks, copy this rank's part, and start to write. Collective.

        Raises:
            TrainingStop: The ranks are out of step.
            StateNotTaken: A rank's state holds something that cannot be stored, or it has no memory
                for the copy.
        """
        begun = time.monotonic()
        self._finish_previous()
        self._ranks.background()  # made by all ranks together, the first time
        self._checks.before_save(request.step, state)
        random = self._ranks.gather_on_writer(state.random_here())
        self._last = (
            None  # from here on `write_again` must not write the snapshot that failed before
        )
        copy, text = run_on_all_ranks(self._ranks, lambda: self._copy_own_part(state, random))
        size = sum(t.numel() * t.element_size() for t in copy.values())
        self._needs = size + len(text) + _OVERHEAD * self._ranks.world, self._ranks.world + 5
        flight = _ShardedSaveInFlight(request, copy, text, begun)
        flight.stall_s = time.monotonic() - begun
        self._start_writing(flight)
        if not self._background:
            flight.stall_s = time.monotonic() - begun

    def write_again(self, *, give_up: bool) -> None:
        """Write the copy of the last `begin_save` again. Collective."""
        self._finish_previous()
        assert self._last is not None, "the last save failed and nothing was begun since"
        last = self._last
        request = replace(last.request, give_up=give_up)
        self._start_writing(
            _ShardedSaveInFlight(request, last.tensors, last.text, time.monotonic())
        )

    def before_change(self) -> None:
        """Do nothing: the copy was made in `begin_save`."""

    def poll_outcome(self) -> SaveOutcome | None:
        """Return the result of the save in flight, once; only the writer receives it."""
        flight = self._flight
        if flight is None or (flight.thread is not None and flight.thread.is_alive()):
            return None
        return self._take_outcome(flight)

    def wait(self) -> SaveOutcome | None:
        """Wait for the end of the save.

        For a limited time if other ranks, perhaps gone, take part.
        """
        flight = self._flight
        if flight is None:
            return None
        if flight.thread is not None:
            flight.thread.join(None if self._ranks.world == 1 else _CLOSE_S)
            if flight.thread.is_alive():
                lost = RanksError(
                    f"the other ranks did not end the save of step {flight.request.step}"
                )
                flight.outcome = SaveOutcome(flight.request, None, lost, flight.stall_s)
        return self._take_outcome(flight)

    def restore_checkpoint(self, directory: str, state: RunState) -> RestoredState:
        """Restore a checkpoint made by any number of ranks. Collective.

        Raises:
            CheckpointDamaged: A rank found a byte that is not the one written; no rank has changed
                anything.
            UsageError: It belongs to something else.
        """
        reader = SafeReader(directory)
        document = run_on_all_ranks(self._ranks, lambda: self._verify_document(directory, state))
        before = matching.frozen_parameters(state.models)
        try:
            taken, wanted = run_on_all_ranks(
                self._ranks, lambda: _collect_target(directory, state, reader)
            )
            run_on_all_ranks(self._ranks, lambda: _load_tensors(wanted, reader, self._ranks.group))
            own = sharded_state.CollectedState(
                {**taken.tensors, **wanted}, taken.plain, taken.objects
            )
            back = sharded_state.restore_all
            restored = run_on_all_ranks(
                self._ranks, lambda: back(state, own, document, wanted, directory)
            )
        finally:
            # Also after an error: the caller may go on with an older checkpoint.
            matching.restore_requires_grad(state.models, before)
        restored.parts.extend(
            matching.restore_requires_grad(state.models, document.get("frozen", before))
        )
        return restored

    def close(self) -> None:
        """Finish the save in flight, unless the ranks it needs are gone."""
        flight = self._flight or self._last
        if flight is not None and flight.thread is not None:
            flight.thread.join(_CLOSE_S)

    def _copy_own_part(
        self, state: RunState, random: list[Any] | None
    ) -> tuple[dict[str, torch.Tensor], bytes]:
        """Return the data this rank has to write; only the writer has a text."""
        try:
            taken = sharded_state.take_state(state)
            text = b""
            if random is not None:
                text = json.dumps(
                    taken.build_document(state, random), separators=(",", ":")
                ).encode()
            return self._stage.copy_tensors(taken.tensors), text
        except RanksError:
            raise
        except Exception as error:
            if isinstance(error, exits.UsageError):
                kind = ""
            else:
                kind = f"{type(error).__name__}: "
            raise StateNotTaken(f"{kind}{error}") from error

    def _verify_document(self, directory: str, state: RunState) -> dict[str, Any]:
        document = _verify_own_share(directory, self._ranks.rank, self._ranks.world)
        sharded_state.check_data(state, document, directory)
        return document

    def _finish_previous(self) -> None:
        """Finish the previous save on this rank, too: the writer knows already that it ended."""
        flight = self._flight
        if flight is None:
            return
        if flight.thread is not None:
            flight.thread.join()
        self._flight = None
        self._last = flight

    def _take_outcome(self, flight: _ShardedSaveInFlight) -> SaveOutcome | None:
        self._flight = None
        self._last = flight
        return flight.outcome

    def _start_writing(self, flight: _ShardedSaveInFlight) -> None:
        self._flight = flight
        flight.thread = threading.Thread(
            # A daemon: a rank that waits for one that died must not keep its process alive.
            target=self._write_until_done,
            args=(flight,),
            name="rgt-save",
            daemon=True,
        )
        flight.thread.start()
        if not self._background:
            flight.thread.join()

    def _write_until_done(self, flight: _ShardedSaveInFlight) -> None:
        """Write until it is published or has failed for good. Runs on every rank, in a thread."""
        try:
            group = self._ranks.background()
            if group.is_writer:
                publisher = Publisher(self._store, flight.request, self._needs)
            else:
                publisher = None
            again = True
            while again:
                path, error = group.share_from_writer(publisher.open_draft() if publisher else None)
                if error is None:
                    mine = self._write_files(flight, path)
                else:
                    mine = ({}, None)
                found = group.gather_on_writer(mine)
                again = group.share_from_writer(
                    publisher.publish_or_drop(error, found) if publisher else None
                )
            if publisher is not None:
                flight.outcome = SaveOutcome(
                    flight.request, publisher.made, publisher.error, flight.stall_s, 0.0,
                    publisher.ended - flight.begun, tuple(publisher.notes),
                )  # fmt: skip
        except BaseException as error:
            flight.outcome = SaveOutcome(flight.request, None, error, flight.stall_s)

    def _write_files(
        self, flight: _ShardedSaveInFlight, path: str
    ) -> tuple[Mapping[str, Any], RankFailure | None]:
        """Write this rank's files; return their facts, or the failure."""
        group = self._ranks.background()
        sha256 = flight.request.kind == BEST
        try:
            save_sharded(
                dict(flight.tensors),
                storage_writer=FileSystemWriter(path, sync_files=True, overwrite=False),
                process_group=group.group,
            )
            # torch names the files __RANK_N.distcp.
            mine = [name for name in os.listdir(path) if name.startswith(f"__{group.rank}_")]
            if group.is_writer:
                write_file(os.path.join(path, STATE_FILE), flight.text)
                mine += [STATE_FILE, METADATA]
            return {
                name: _file_facts(os.path.join(path, name), sha256=sha256) for name in mine
            }, None
        except CheckpointException as error:
            rank, (cause, _) = next(iter(error.failures.items()))
            return {}, RankFailure.from_error(cause, rank)
        except Exception as error:
            return {}, RankFailure.from_error(error, group.rank)


def _file_facts(path: str, *, sha256: bool) -> dict[str, Any]:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return manifest.file_facts(memoryview(b""), sha256=sha256)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
            return manifest.file_facts(view, sha256=sha256)


def _verify_own_share(directory: str, rank: int, world: int) -> dict[str, Any]:
    """Verify this rank's share of the files; return the document of plain values.

    Raises:
        CheckpointDamaged: A byte is not the one written.
        UsageError: It is not a sharded checkpoint.
    """
    names: Sequence[str] = sorted(manifest.read_manifest(directory)["files"])
    if METADATA not in names:
        raise exits.UsageError(
            f"{directory} was saved by a run whose model is not sharded; launch it as before, or "
            "give another --out"
        )
    shared = [name for name in names if name not in (METADATA, STATE_FILE)]
    verified = manifest.open_verified(directory, only={METADATA, STATE_FILE, *shared[rank::world]})
    try:
        document: dict[str, Any] = json.loads(bytes(verified.views[STATE_FILE]))
    except (KeyError, ValueError) as error:
        raise exits.UsageError(
            f"{directory} is intact but cannot be understood: {error!r}"
        ) from error
    finally:
        verified.release()
    return document


def _collect_target(
    directory: str, state: RunState, reader: SafeReader
) -> tuple[sharded_state.CollectedState, dict[str, torch.Tensor]]:
    """Return the present state, and the tensors into which the checkpoint is read."""
    saved = tensors_in(reader)
    # torch makes room only for the moments of tensors with gradients; frozen ones may have moments,
    # too.
    matching.unfreeze_parameters(state.models, sharded_state.stepped_parameters(saved))
    taken = sharded_state.take_state(state)
    shapes = {name: tuple(entry.size) for name, entry in saved.items()}
    unsaved = sharded_state.prefixes_without_moments(state, saved)
    here = {name: held for name, held in taken.tensors.items() if not name.startswith(unsaved)}
    sharded_state.check_names(shapes, here, directory)
    kinds = {name: (shapes[name], entry.properties.dtype) for name, entry in saved.items()}
    return taken, sharded_state.room_for(kinds, taken.tensors)


def _load_tensors(tensors: dict[str, torch.Tensor], reader: SafeReader, group: Any) -> None:
    try:
        load_sharded(dict(tensors), storage_reader=reader, process_group=group)
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        raise exits.UsageError(
            f"{reader.path} could not be loaded: rank {rank}: {type(cause).__name__}: {cause}"
        ) from error
