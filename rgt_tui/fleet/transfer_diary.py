"""Current and past transfers of every rgt of this person, one small file each.

``$XDG_STATE_HOME/rgt/transfers/BEGAN-PID.json``. The transferring process locks its file and
rewrites it about once a second. A file without an end and without a lock belongs to a process that
was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import open_regular, state_directory
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.transfer.copying import PullProgress, TransferRate, time_to_go

EVERY_SECONDS = 1.0
KEPT = 100
"""Number of transfers remembered; the oldest finished ones are deleted first."""
MOST_BYTES = 64 << 10
LOOKS = 10
STOPPED = "stopped"
"""`TransferNote.text` of a transfer that the person stopped."""
_OURS: set[str] = set()
"""Names of the files that this process has written."""


class TransferNote(FrozenStruct, kw_only=True):
    """One transfer, as last written by its rgt."""

    box: str
    kind: str
    """``pull``, ``push code``, ``push data``, ``push trainer`` or ``mirror``."""
    paths: tuple[str, ...] = ()
    """The copied files: paths on the box, or local ones for a push. Empty = all results."""
    paths_left_out: int = 0
    """Number of paths beyond those listed."""
    to: str = ""
    """The destination; empty = not known yet."""
    began_at: float
    """Client clock, like all times here."""
    pid: int
    """Process id of the rgt that copies."""
    look: PullProgress | None = None
    """The last progress; None = not reported yet."""
    told_at: float
    plan: str = ""
    ended_at: float | None = None
    whole: bool | None = None
    """All of it arrived and was verified; None = it has not ended, or its end was not recorded."""
    text: str = ""
    """One line: the result."""
    cut_off: bool = False
    """It was interrupted: its rgt was killed, or the machine stopped."""
    ours: bool = False
    """It was started by this process."""
    name: str = ""
    """Name of its file."""

    @property
    def under_way(self) -> bool:
        """Whether it is in progress."""
        return self.ended_at is None and not self.cut_off

    @property
    def was_stopped(self) -> bool:
        """Whether a person stopped it."""
        return self.text == STOPPED


class DiaryPage:
    """Records the progress of one transfer. Its methods are thread-safe and do not block.

    Args:
        note: The facts known at the beginning.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, note: TransferNote, clock: Callable[[], float] = time.monotonic) -> None:
        self.note = note
        self._clock = clock
        self._rate = TransferRate()

    def record_push_progress(self, done: int, total: int) -> None:
        """Record how many bytes of a push have been sent, and their total."""
        rate = self._rate.add_reading(self._clock(), done)
        eta = time_to_go(total - done, rate)
        self.record_progress(
            PullProgress(phase="pushing", bytes=total, bytes_done=done, rate=rate, eta=eta)
        )

    def record_progress(self, look: PullProgress) -> None:
        """Record the progress."""
        look = msgspec.structs.replace(look, path=_clean_path(look.path))
        self.note = msgspec.structs.replace(self.note, look=look, told_at=time.time())

    def record_plan(self, text: str) -> None:
        """Record the plan."""
        self.note = msgspec.structs.replace(self.note, plan=_clean_path(text), told_at=time.time())

    def record_result(self, text: str, *, whole: bool, to: str | None = None) -> None:
        """Record the result."""
        now = time.time()
        if to is None:
            place = self.note.to
        else:
            place = _clean_path(to)
        self.note = msgspec.structs.replace(
            self.note, whole=whole, text=_clean_path(text), ended_at=now, told_at=now, to=place
        )


def _clean_path(text: str) -> str:
    return clean_text(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


@contextlib.asynccontextmanager
async def noted_transfer(
    box: str,
    kind: str,
    paths: tuple[str, ...] = (),
    to: str = "",
    env: Mapping[str, str] = os.environ,
) -> AsyncIterator[DiaryPage]:
    """Record a transfer while it runs, and its result. A failing disk never disturbs it.

    Args:
        box: Its name.
        kind: As in `TransferNote`.
        paths: The copied files.
        to: The destination, if already known.
        env: Environment with the location of rgt's state.
    """
    now = time.time()
    most_paths = 20
    shown = tuple(map(_clean_path, paths[:most_paths]))
    first = TransferNote(
        box=box, kind=kind, paths=shown, paths_left_out=len(paths) - len(shown), to=_clean_path(to),
        began_at=now, told_at=now, pid=os.getpid(),
    )  # fmt: skip
    page = DiaryPage(first)
    handle = await asyncio.to_thread(_begin_page, page, env)
    if handle is not None:
        keeper = asyncio.ensure_future(_keep_saving(page, first, handle))
    else:
        keeper = None
    try:
        yield page
    except BaseException as error:
        if page.note.ended_at is None:
            stopped = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
            page.record_result(
                STOPPED if stopped else str(error) or type(error).__name__, whole=False
            )
        raise
    finally:
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        if handle is not None:
            if page.note.ended_at is None:
                page.record_result("ended", whole=False)
            await asyncio.to_thread(_finish_page, page, handle)


def _begin_page(page: DiaryPage, env: Mapping[str, str]) -> int | None:
    """Create and lock the file; None = it cannot be written."""
    folder = _diary_folder(env)
    name = f"{time.time_ns():020d}-{os.getpid()}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _delete_oldest(folder)
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _OURS.add(name)
        _write_note(handle, page.note)
    except OSError:
        os.close(handle)
        return None
    return handle


async def _keep_saving(page: DiaryPage, written: TransferNote, handle: int) -> None:
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        if (note := page.note) is not written:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(_write_note, handle, note)
            written = note


def _finish_page(page: DiaryPage, handle: int) -> None:
    try:
        with contextlib.suppress(OSError):
            _write_note(handle, page.note)
    finally:
        os.close(handle)


def _write_note(handle: int, note: TransferNote) -> None:
    """Overwrite a note with one write: a reader sees the old or the new one, or retries.

    The new text is padded with spaces to the old size, because the file is never truncated.
    """
    data = msgspec.json.encode(note) + b"\n"
    os.pwrite(handle, data.ljust(os.fstat(handle).st_size), 0)


def _diary_folder(env: Mapping[str, str]) -> Path:
    return state_directory(env) / "transfers"


def _delete_oldest(folder: Path) -> None:
    """Delete the oldest files of finished transfers."""
    for path in sorted(folder.glob("*.json"), reverse=True)[KEPT - 1 :]:
        with contextlib.suppress(OSError):
            note = _read_note(path)
            if note is None or not note.under_way:
                path.unlink()


def read_notes(env: Mapping[str, str] = os.environ) -> tuple[TransferNote, ...]:
    """Return all recorded transfers, the newest first. Blocks on the disk.

    A file that is damaged or not a note is skipped.

    Args:
        env: Environment with the location of rgt's state.

    Raises:
        OSError: the directory cannot be read.
    """
    try:
        paths = sorted(_diary_folder(env).glob("*.json"), reverse=True)
    except FileNotFoundError:
        return ()
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            note = _read_note(path)
            if note is not None:
                found.append(note)
    return tuple(found)


def _read_note(path: Path) -> TransferNote | None:
    with open_regular(path, follow=False) as file:
        # Before reading: a transfer that ends in between has then written its end.
        dead = _is_free(file.fileno())
        note = _decode_note(file.fileno())
        # Seconds between two reads of a note that is just being written: a reader may see its new
        # beginning before the file has grown.
        look_seconds = 0.01
        for _ in range(0 if dead else LOOKS):
            if note is not None:
                break
            time.sleep(look_seconds)
            note = _decode_note(file.fileno())
    if note is None:
        return None
    cut_off = dead and note.ended_at is None
    return msgspec.structs.replace(note, cut_off=cut_off, ours=path.name in _OURS, name=path.name)


def _decode_note(handle: int) -> TransferNote | None:
    try:
        return msgspec.json.decode(os.pread(handle, MOST_BYTES, 0), type=TransferNote)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(handle, fcntl.LOCK_UN)
    return True
