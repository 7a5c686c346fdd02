"""The mirror process: copies checkpoints, reads them back, and fetches them for a wiped disk.

A separate process, so that a slow network delays neither the training nor the next save, and the
libraries of an object store neither draw the training's random numbers nor start threads in its
process. It ends with its trainer.

A run gets a name when its mirror is first used, stored in ``OUT/run-id`` and, with the launch that
writes, in the file ``owner.json`` of the mirror. A launch with an empty directory adopts the name,
which restores a wiped disk. A launch whose directory belongs to another run is refused. The last
launch holds the mirror; an earlier one that still runs elsewhere is refused at its next copy, and
changes nothing there any more.

``ledger.jsonl`` and ``metrics.jsonl`` are copied completely with the checkpoints: a wiped box keeps
its failure count and curves.
"""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Callable, Mapping, Sequence, TypeVar

from rgt_wire import size_text

from rgt_train.checkpoint import diskio, manifest, store, writer
from rgt_train.checkpoint import mirror_places as places
from rgt_train.checkpoint.diskio import Unreadable, fsync_dir, make_dirs, remove_path, replace_file
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.checkpoint.mirror_places import (
    MANIFEST,
    OWNER,
    MirrorPlace,
    best_items,
    fetch_directory,
    open_place,
    step_items,
)
from rgt_train.checkpoint.store import CheckpointItem, CheckpointStore, KeepPolicy
from rgt_train.checkpoint.writer import die_with_parent
from rgt_train.exits import UsageError
from rgt_train.tracking import report, run_log

ID_FILE = "run-id"
PROVEN = os.path.join(".rgt", "proven")
"""Folder of the checksums of another trainer's checkpoints, in the run directory."""


@dataclass(frozen=True)
class MirrorOwner:
    """The holder of a mirror.

    Attributes:
        run: Name of the run, the same for all its launches.
        launch: Name of the launch that may write.
        where: Host and run directory of that launch, for a person.
        since: Its arrival, seconds since 1970.
    """

    run: str
    launch: str
    where: str
    since: float

    def to_bytes(self) -> bytes:
        """Return it as the content of a file."""
        return (json.dumps(asdict(self), sort_keys=True) + "\n").encode()


def check_owner(place: MirrorPlace, out: str, launch: str, *, held: bool) -> MirrorOwner | None:
    """Check that the run in `out` may write to `place`.

    Args:
        place: The mirror.
        out: The run directory.
        launch: Name of this launch.
        held: Whether this launch held the mirror before.

    Returns:
        The owner to record with `record_owner`; None if it is recorded already.

    Raises:
        UsageError: It is the mirror of another run, or another launch has taken it meanwhile.
        OSError: The place does not answer.
    """
    noted = _parse_owner(place.read_note(), f"{place.url}/{OWNER}")
    mine = _own_id(out)
    if noted is not None and noted.launch == launch:
        return None
    # The order matters: a launch that lost the mirror must not take it back.
    if noted is not None and held:
        raise UsageError(
            f"another launch of this run took the mirror {place.url} over: {noted.where}. One of "
            "the two must end; nothing more is copied by this one"
        )
    if noted is not None and mine != noted.run and (mine or _has_checkpoints(out)):
        raise UsageError(
            f"the mirror {place.url} belongs to another run ({noted.run}, last held by "
            f"{noted.where}): each run needs a mirror of its own. If it is this run's all the "
            f"same, write that name into {os.path.join(out, ID_FILE)}"
        )
    if noted is not None:
        run = noted.run
    else:
        run = mine or os.urandom(8).hex()
    return MirrorOwner(run, launch, f"{socket.gethostname()}:{out}", round(time.time(), 3))


def record_owner(place: MirrorPlace, out: str, owner: MirrorOwner) -> None:
    """Record `owner` in the run directory and in the mirror.

    Raises:
        OSError: It could not be recorded.
    """
    if _own_id(out) != owner.run:
        replace_file(os.path.join(out, ID_FILE), f"{owner.run}\n".encode())
    # After the local file: a kill in between leaves a directory that already has the mirror's name.
    place.write_note(owner.to_bytes())


def _own_id(out: str) -> str:
    try:
        return diskio.read_content(os.path.join(out, ID_FILE)).decode(errors="replace").strip()
    except OSError:
        return ""


def _has_checkpoints(out: str) -> bool:
    store = CheckpointStore(out, 0)
    return (
        bool(store.list_items())
        or diskio.is_dir(store.best)
        or diskio.is_dir(os.path.join(out, PROVEN))
    )


def _parse_owner(raw: bytes, where: str) -> MirrorOwner | None:
    if not raw:
        return None
    try:
        body = json.loads(raw)
        return MirrorOwner(
            str(body["run"]), str(body["launch"]), str(body["where"]), float(body["since"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{where} cannot be understood ({error!r}): it says whose mirror it is; remove it if "
            "it is this run's"
        ) from error


T = TypeVar("T")
FULL = (errno.ENOSPC, errno.EDQUOT)


def prune_mirror(
    place: MirrorPlace, policy: KeepPolicy, spare: str, keep: Sequence[int] = ()
) -> None:
    """Delete what the policy does not keep; keep the newest ``best`` and the steps kept locally.

    Args:
        place: The mirror.
        policy: What stays.
        spare: Name of the checkpoint just copied: it always stays.
        keep: Further steps that stay.

    Raises:
        OSError: The place does not answer.
    """
    names = place.list_names()
    for item in [
        *store.find_unprotected(_step_items_with_time(place, policy, names), policy),
        *best_items(names)[:-1],
    ]:
        if item.name != spare and item.step not in keep:
            place.delete_directory(item.name)


def retry_with_room(
    place: MirrorPlace,
    policy: KeepPolicy,
    spare: str,
    says: list[str],
    work: Callable[[], T],
    keep: Sequence[int] = (),
) -> T:
    """Return ``work()``; while the place is full, delete the least valuable checkpoint and retry.

    Args:
        place: The mirror.
        policy: What stays if there is room.
        spare: Name of the checkpoint that `work` writes.
        says: Gets a line for each deleted checkpoint.
        work: Writes to the place.
        keep: Steps that are not deleted.

    Raises:
        OSError: It failed for another reason than space, or nothing more may be deleted.
    """
    while True:
        try:
            return work()
        except OSError as error:
            if error.errno in FULL:
                victim = _least_valuable(place, policy, spare, keep)
            else:
                victim = None
            if victim is None:
                raise
            place.delete_directory(victim)
            says.append(f"no room on the mirror {place.url}: gave up {victim} there")


def _least_valuable(
    place: MirrorPlace, policy: KeepPolicy, spare: str, keep: Sequence[int]
) -> str | None:
    names = place.list_names()
    known = _step_items_with_time(place, policy, names)
    items = [*best_items(names)[:-1], *store.by_ascending_value(known, policy, spare)]
    return next((item.name for item in items if item.name != spare and item.step not in keep), None)


def _step_items_with_time(
    place: MirrorPlace, policy: KeepPolicy, names: list[str]
) -> list[CheckpointItem]:
    known = step_items(names)
    # The time is in each manifest: without hourly checkpoints those requests are not needed.
    if policy.hours:
        return [_with_time(place, item) for item in known]
    return known


def _with_time(place: MirrorPlace, item: CheckpointItem) -> CheckpointItem:
    try:
        raw = b"".join(place.stream_file(item.name, MANIFEST))
        at = float(manifest.parse_manifest(raw, f"{place.url}/{item.name}").get("time", 0.0))
    except (CheckpointDamaged, UsageError, OSError):
        at = 0.0
    return CheckpointItem(item.step, item.attempt, item.serial, item.name, at)


LOGS = (run_log.RUN_LOG, report.METRICS)
"""Files kept next to the checkpoints."""


def download_newest(
    place: MirrorPlace, store: CheckpointStore, local: int | None
) -> tuple[str | None, list[str]]:
    """Fetch the newest good checkpoint of `place` if it is newer than step `local`.

    ``best`` is fetched too if it is missing here, damaged, or older than the best of that
    checkpoint.

    Returns:
        The new path of the checkpoint, None if nothing newer is there; and readable lines.

    Raises:
        OSError: The place does not answer, or the local disk refuses.
        Unreadable: The disk cannot tell whether the local ``best`` is complete.
        UsageError: A checkpoint there is intact but of another format; or nothing is here, and all
            there are damaged.
    """
    says: list[str] = []
    names = place.list_names()
    newer = [item for item in step_items(names) if local is None or item.step > local]
    if best_items(names) and _wants_best(store, best_items(names)[-1], stale=bool(newer)):
        _fetch_newest(place, store, best_items(names), store.best, says)
    path = _fetch_newest(place, store, newer, None, says)
    if path is None and newer and local is None and not diskio.is_dir(store.best):
        raise UsageError(
            f"no checkpoint in the mirror {place.url} is good, and none was deleted: "
            f"{'; '.join(says)}. To start from step 0, give another --out and another mirror"
        )
    return path, says


def delete_steps_from(place: MirrorPlace, first: int) -> None:
    """Delete the checkpoints from step `first` on, which a rollback gives up.

    Raises:
        OSError: The place does not answer.
    """
    for item in step_items(place.list_names()):
        if item.step >= first:
            place.delete_directory(item.name)


def keep_logs(place: MirrorPlace, out: str) -> None:
    """Copy the logs of the run in `out` to `place`, up to the last full line.

    The trainer may be writing the next line meanwhile.

    Raises:
        OSError: The place refuses them; its earlier copy is still there.
        Unreadable: The disk cannot return their content.
    """
    for name in LOGS:
        try:
            content = diskio.read_content(os.path.join(out, name))
        except OSError:
            continue  # there is no such log
        whole = content[: content.rfind(b"\n") + 1]
        if whole:
            place.write_note(whole, name)


def download_logs(place: MirrorPlace, out: str) -> list[str]:
    """Fetch the logs that `place` has and `out` lacks; return their names.

    Raises:
        OSError: The place does not answer, or the local disk refuses.
    """
    found: list[str] = []
    for name in LOGS:
        path = os.path.join(out, name)
        if os.path.exists(path) and os.path.getsize(path):
            continue
        content = place.read_note(name)
        if content:
            make_dirs(out)
            replace_file(path, content)
            found.append(name)
    return found


def _fetch_newest(
    place: MirrorPlace,
    store: CheckpointStore,
    items: list[CheckpointItem],
    target: str | None,
    says: list[str],
) -> str | None:
    """Fetch the newest complete one of `items`; return its new path."""
    # The newest first; an older one is only used if that one is damaged.
    for item in reversed(items):
        temporary = store.temporary("step", item.step)
        try:
            os.makedirs(store.root, exist_ok=True)
            fetch_directory(place, item.name, temporary)
        except Unreadable:
            raise
        except CheckpointDamaged as error:
            says.append(f"{place.url}/{item.name} is damaged, not used: {error}")
            continue
        path = target or store.path_of(item)
        aside = store.aside_path(path)
        if target is None:
            store.set_aside(path)  # the local one with that name was examined and is damaged
        elif os.path.lexists(path):
            os.rename(path, aside)
        # Only complete directories get a name under which a launch would find them.
        os.rename(temporary, path)
        for parent in (store.root, store.out):
            fsync_dir(parent)
        remove_path(aside)
        size = sum(facts["size"] for facts in manifest.read_manifest(path)["files"].values())
        says.append(f"fetched {item.name} from the mirror {place.url}  {size_text(size)}")
        return path
    return None


def _wants_best(store: CheckpointStore, there: CheckpointItem, *, stale: bool) -> bool:
    """Return whether to fetch the ``best`` of the mirror; move a damaged local one away.

    Args:
        store: The local checkpoints.
        there: The best of the mirror.
        stale: Whether the local ones are older than the mirror's.
    """
    try:
        body = manifest.verify_checkpoint(store.best)
    except Unreadable:
        raise
    except (CheckpointDamaged, UsageError):
        store.set_best_aside()
        return True
    here = (int(body.get("attempt", 0)), int(body["step"]))
    return stale and (there.attempt, there.step) > here


def main() -> None:
    """Serve until the trainer closes the connection."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    die_with_parent(int(sys.argv[2]))
    if hasattr(os, "nice"):
        os.nice(5)  # not urgent: the checkpoint is on the local disk
    reader = writer.MessageReader(sock)
    errands: MirrorRequests | None = None
    try:
        while True:
            message = reader.read_message(block=True)
            assert message is not None, "a blocking read returns a message"
            fields = message[0]
            held = bool(fields["held"])
            try:
                if errands is None:
                    errands = MirrorRequests(
                        open_place(fields["url"]), fields["out"], fields["launch"], held=held
                    )
                answer = errands.perform_request(fields)
            except (OSError, CheckpointDamaged, UsageError) as error:
                answer = {
                    "error": f"{type(error).__name__}: {error}",
                    "usage": isinstance(error, UsageError),
                }
            writer.send_message(
                sock, {**answer, "held": errands.held if errands is not None else held}
            )
    except writer.ConnectionClosed:
        os._exit(0)


class MirrorRequests:
    """Performs the requests of one launch to its mirror.

    Args:
        place: The mirror.
        out: The run directory.
        launch: Name of the launch.
        held: Whether it held the mirror already, before this process was started.
    """

    def __init__(self, place: MirrorPlace, out: str, launch: str, *, held: bool) -> None:
        self._place = place
        self._out = out
        self._launch = launch
        self.held = held
        self._swept = self._logs_failed = False
        self._verbs = {
            "copy": self._copy_checkpoint,
            "logs": self._copy_logs,
            "download": self._download_newest,
            "forget": self._delete_steps_from,
        }

    def perform_request(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Perform the request and return the answer.

        Raises:
            OSError: The place, or the local disk, failed.
            CheckpointDamaged: The bytes read back differ from the copied ones.
            UsageError: The mirror is not this launch's.
        """
        owner = check_owner(self._place, self._out, self._launch, held=self.held)
        return self._verbs[fields["do"]](fields, owner)

    def _copy_checkpoint(self, fields: dict[str, Any], owner: MirrorOwner | None) -> dict[str, Any]:
        policy, name, says = KeepPolicy(fields["last"], fields["hours"]), fields["name"], []  # type: ignore[var-annotated]
        if owner is not None:
            retry_with_room(
                self._place, policy, name, says, lambda: record_owner(self._place, self._out, owner)
            )
        self.held = True
        if not self._swept:
            self._place.remove_partial()
            self._swept = True
        if "files" in fields:
            foreign = ForeignCheckpoint(fields["files"], fields["manifest"], fields["keep"])
        else:
            foreign = None
        done = copy_and_verify(self._place, fields["path"], name, policy, says, foreign)
        try:
            keep_logs(self._place, self._out)
            self._logs_failed = False
        except OSError as error:  # the checkpoint is copied despite that
            if not self._logs_failed:
                says.append(f"the logs are not mirrored: {type(error).__name__}: {error}")
            self._logs_failed = True
        return {**done, "says": says}

    def _copy_logs(self, fields: dict[str, Any], owner: MirrorOwner | None) -> dict[str, Any]:
        if owner is not None:
            record_owner(self._place, self._out, owner)
        self.held = True
        keep_logs(self._place, self._out)
        return {"gone": True}

    def _download_newest(self, fields: dict[str, Any], owner: MirrorOwner | None) -> dict[str, Any]:
        path, says = download_newest(
            self._place, CheckpointStore(self._out, fields["attempt"]), fields["local"]
        )
        if owner is not None:
            # a full mirror can still be read; the next copy records the owner
            with suppress(OSError):
                record_owner(self._place, self._out, owner)
                self.held = True
        return {"path": path, "says": says, "logs": download_logs(self._place, self._out)}

    def _delete_steps_from(
        self, fields: dict[str, Any], owner: MirrorOwner | None
    ) -> dict[str, Any]:
        if owner is not None:
            record_owner(self._place, self._out, owner)
        self.held = True
        delete_steps_from(self._place, fields["first"])
        return {}


@dataclass(frozen=True)
class ForeignCheckpoint:
    """A checkpoint of another trainer, whose manifest is not among its files.

    Attributes:
        files: Name in the manifest → path.
        manifest: The manifest.
        keep: Steps that stay in the mirror besides the ones that the policy keeps.
    """

    files: Mapping[str, str]
    manifest: str
    keep: Sequence[int] = ()


def copy_and_verify(
    place: MirrorPlace,
    path: str,
    name: str,
    policy: KeepPolicy,
    says: list[str] | None = None,
    foreign: ForeignCheckpoint | None = None,
) -> dict[str, Any]:
    """Copy the checkpoint at `path` and compare every byte.

    Then delete what the policy does not keep.

    Args:
        place: The mirror.
        path: The checkpoint.
        name: Its name there.
        policy: What stays there; the new copy always stays.
        says: Gets a line for each checkpoint deleted for space.
        foreign: The files of another trainer's checkpoint; `path` is unused then.

    Raises:
        OSError: The place, or the local disk, failed.
        CheckpointDamaged: The bytes read back differ from the copied ones.
    """
    begun = time.monotonic()
    keep: Sequence[int] = ()
    if foreign is not None:
        keep = foreign.keep
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        try:
            if foreign is None:
                body = manifest.read_manifest(path)
                paths = {file: os.path.join(path, file) for file in [*body["files"], MANIFEST]}
            else:
                body, paths = (
                    manifest.parse_manifest(foreign.manifest.encode(), name),
                    dict(foreign.files),
                )
                files[MANIFEST] = io.BytesIO(foreign.manifest.encode())
            for file, source in paths.items():
                # All opened at once: the checkpoint may be pruned here during the copy.
                files[file] = stack.enter_context(open(source, "rb", buffering=0))
        # It was pruned here before the copy began: a newer one is waiting already.
        except (CheckpointDamaged, FileNotFoundError):
            return {"gone": True}
        if name not in place.list_names() or not _is_whole(place, name, body):
            if says is None:
                told = []
            else:
                told = says
            retry_with_room(
                place, policy, name, told, lambda: _put_from_start(place, name, files), keep
            )
            verify_against_body(place, name, body)
    prune_mirror(place, policy, name, keep)
    size = sum(facts["size"] for facts in body["files"].values())
    return {"bytes": size, "seconds": time.monotonic() - begun}


def verify_against_body(place: MirrorPlace, name: str, body: dict[str, Any]) -> None:
    """Read a directory back and compare every byte of it, and its manifest with `body`.

    Raises:
        CheckpointDamaged: Something differs.
    """
    places.verify_copy(place, name, body["files"])
    if read_place_manifest(place, name) != body:
        raise CheckpointDamaged(f"{MANIFEST} reads back differently")


def _is_whole(place: MirrorPlace, name: str, body: dict[str, Any]) -> bool:
    """Return whether an existing copy is correct; a dead attempt may have begun it."""
    try:
        verify_against_body(place, name, body)
    except (CheckpointDamaged, UsageError):
        return False
    return True


def read_place_manifest(place: MirrorPlace, name: str) -> dict[str, Any]:
    """Return the manifest in the directory `name` of a place.

    Raises:
        CheckpointDamaged: It is altered.
    """
    return manifest.parse_manifest(
        b"".join(place.stream_file(name, MANIFEST)), f"{place.url}/{name}"
    )


def _put_from_start(place: MirrorPlace, name: str, files: Mapping[str, BinaryIO]) -> None:
    for source in files.values():
        source.seek(0)  # an earlier attempt may have read them
    place.put_directory(name, files)
