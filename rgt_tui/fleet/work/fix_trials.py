"""Steps of a fix that run on a box: commands that only look, and removals that were previewed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rgt_tui.fleet.work.agent_answers import AgentAnswer, Row, query_agent, row_text
from rgt_tui.gate import AuditEntry, AuditEvent, AuditLog
from rgt_tui.health import LookTrial, RemovalTrial, find_removal_objection, paths_to_keep
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, BoxState, FrozenStruct, clean_decoded, clean_text, how_many, size
from rgt_tui.ssh import BoxTransport, CommandFailed, DeployedAgent

Agent = tuple[BoxTransport, DeployedAgent]


class FixRefused(Exception):
    """Nothing was removed; the message says why."""


class OpenHandle(FrozenStruct, kw_only=True):
    """A process that uses files of a path."""

    pid: int
    name: str
    command: str = ""
    handles: int = 0
    writes: int = 0
    """Handles that it may write to."""
    works: bool = False
    """Its working directory is there."""
    mapped: bool = False


class DiskFigures(FrozenStruct, kw_only=True):
    """What a disk shows."""

    bytes_total: int
    bytes_used: int
    inodes_total: int | None = None
    inodes_used: int | None = None


class RemovalPreview(FrozenStruct, kw_only=True):
    """What the removal of a path would remove, or has removed."""

    at: float
    """Clock of the box."""
    path: str
    files: int
    folders: int
    bytes: int
    """Bytes that would be free: not those of files with other names elsewhere."""
    inodes: int
    oldest: float
    newest: float
    owners: dict[str, int]
    logs: int
    checkpoints: int
    refused: tuple[str, ...]
    digest: str
    open: tuple[OpenHandle, ...] = ()
    unread: int = 0
    """Processes of other users whose handles cannot be read."""
    disk: DiskFigures | None = None
    """Of the disk when it was read; after a removal, of the disk without it."""
    removed: bool = False
    failed: tuple[str, ...] = ()

    def room_after(self) -> DiskFigures | None:
        """Return what the disk would show afterwards; None if it is unknown."""
        if self.disk is None or self.removed:
            return self.disk
        inodes = self.disk.inodes_used
        if inodes is not None:
            inodes = max(0, inodes - self.inodes)
        return msgspec.structs.replace(
            self.disk,
            bytes_used=max(0, self.disk.bytes_used - self.bytes),
            inodes_used=inodes,
        )


class FixTrials:
    """Runs steps of a fix on one box.

    Args:
        agent: Returns the connection and the agent; raises `BoxError` while not connected.
        read_state: Returns the newest state of the box.
        audit: Where removals are recorded, before and after.
        publish: Called with a message for the events, and its level.
        clock: Epoch seconds.
    """

    def __init__(
        self,
        agent: Callable[[], Agent],
        read_state: Callable[[], BoxState],
        audit: AuditLog,
        publish: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._agent = agent
        self._read_state = read_state
        self._audit = audit
        self._publish = publish
        self._clock = clock

    async def run_look(self, trial: LookTrial, on_line: Callable[[str], None]) -> int:
        """Run a command that only looks; return its exit status.

        Raises:
            BoxError: the box was not reached, or the agent's answer is unusable.
        """

        def read_row(row: Row) -> None:
            if "line" in row:
                on_line(row_text(row, "line"))
            elif row.get("cut"):
                on_line(f"({row_text(row, 'cut')})")

        # As words, not as a shell line: the agent starts the programs itself.
        words = ["fix", "--look", msgspec.json.encode(trial.stages).decode()]
        answer = await self._query_agent(words, each=read_row)
        return answer.status

    async def preview_removal(self, trial: RemovalTrial) -> RemovalPreview:
        """Return what a removal would remove.

        Raises:
            BoxError: the box was not reached, or the agent's answer is unusable.
        """
        return await self._query_removal(trial.path)

    async def remove_previewed(self, preview: RemovalPreview, typed: str) -> RemovalPreview:
        """Remove what a preview has shown, and record that before and after.

        Args:
            preview: The answer of `preview_removal`.
            typed: What the person typed: the last word of the path.

        Raises:
            FixRefused: nothing was removed.
            AuditFailed: it cannot be recorded; nothing was removed.
            BoxError: it is unknown how much was removed.
        """
        trial = RemovalTrial(preview.path)
        # Once more, because a run may have started since the preview.
        objection = find_removal_objection(self._read_state(), trial.path)
        # The path's own word, so that no one removes by habit.
        if typed != trial.last_word:
            objection = translate("type {last_word} to remove it", last_word=trial.last_word)
        if objection or preview.refused or preview.removed:
            raise FixRefused(
                "; ".join((*preview.refused, objection or translate("it is already removed")))
            )
        amount = f"{how_many(preview.inodes, 'inode')}, {size(preview.bytes)}"
        self._write_audit(AuditEvent.REQUESTED, f"remove {trial.path}: {amount}", preview, typed)
        try:
            # With the digest of the preview: the agent refuses if anything has changed.
            done = await self._query_removal(trial.path, "--remove", preview.digest)
        except Exception as error:
            self._write_audit(AuditEvent.ANSWER, f"{trial.path}: unknown, {error}", preview)
            self._publish(
                translate(
                    "unknown how much of {path} was removed: {error}", path=trial.path, error=error
                ),
                "error",
            )
            raise
        if done.refused:
            self._write_audit(
                AuditEvent.REFUSED, f"{trial.path}: {'; '.join(done.refused)}", preview
            )
            raise FixRefused("; ".join(done.refused))
        if done.removed:
            self._write_audit(AuditEvent.ANSWER, f"removed {trial.path}: {amount}", preview)
            self._publish(
                translate("removed {path} ({amount})", path=trial.path, amount=amount), "info"
            )
        else:
            self._write_audit(AuditEvent.ANSWER, f"{trial.path}: {'; '.join(done.failed)}", preview)
            self._publish(translate("{path} was removed only in part", path=trial.path), "warn")
        return done

    async def _query_removal(self, path: str, *options: str) -> RemovalPreview:
        keep = [
            word for kept in sorted(paths_to_keep(self._read_state())) for word in ("--keep", kept)
        ]
        answer = await self._query_agent(["fix", *keep, *options, "--", path])
        try:
            found = clean_decoded(msgspec.convert(answer.last_row, RemovalPreview))
        except msgspec.ValidationError as error:
            raise CommandFailed(
                translate("the agent's answer cannot be used: {words}", words=answer.words or error)
            ) from error
        if found.path != path:
            raise CommandFailed(translate("the agent's answer is about another path"))
        return found

    async def _query_agent(
        self, words: Sequence[str], each: Callable[[Row], None] | None = None
    ) -> AgentAnswer:
        seconds = 900.0
        connection, deployed = self._agent()
        # A command line is limited to 128 KiB, which a long roster exceeds.
        data = msgspec.json.encode(list(words[1:])) + b"\n"
        given = (words[0], "--words-from-stdin")
        return await query_agent(connection, deployed, given, data=data, seconds=seconds, each=each)

    def _write_audit(
        self, event: AuditEvent, text: str, preview: RemovalPreview, typed: str = ""
    ) -> None:
        spec: BoxSpec = self._read_state().spec
        instance = ""
        if spec.provider is not None:
            instance = spec.provider.instance
        self._audit.record_entry(
            AuditEntry(
                at=self._clock(),
                event=event,
                box=spec.name,
                verb=None,
                instance=instance,
                shown=preview.digest,
                typed=typed,
                text=clean_text(text),
                deed="remove",
            )
        )
