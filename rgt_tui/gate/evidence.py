"""Builds the evidence for a billing action from what is known.

Pure: same arguments, same evidence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.gate.identity import IDENTITY, identity
from rgt_tui.gate.journal import Target
from rgt_tui.gate.quiet import QUIET, is_off, quiet
from rgt_tui.gate.roster import RESULTS, Told, roster
from rgt_tui.model import (
    BY_HAND,
    BillingAction,
    BoxState,
    Checkpoints,
    Evidence,
    EvidenceItem,
    Forfeit,
    Link,
    Meter,
    Profile,
    QueueState,
    Results,
    Seal,
    Verb,
)
from rgt_tui.profiles import action_for, how_many, in_both, lacking, listed, quoted, storage_of
from rgt_tui.profiles.survival import holds, sampled_mounts

NAME, SEAL, QUEUE, PROVIDER, PROTECTED, READONLY = (
    "name",
    "seal",
    "queue",
    "provider",
    "protected",
    "readonly",
)


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """What the person agreed to for an action."""

    typed: str = ""
    forfeits: frozenset[str] = frozenset()
    """Keys of items that are given up."""
    ignored: frozenset[str] = frozenset()
    """Keys of items whose files are not results."""
    unprotect: str = ""
    """The text typed to lift ``protected``."""


SILENT = Consent()


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known for an action, each part with its own time on the steady clock."""

    state: BoxState
    meter: Meter
    """The provider's status, read for this action."""
    meter_at: float | None
    """Time of that reading."""
    profile: Profile | None
    """The platform; None = unknown, which refuses."""
    action: str
    """The provider's word for the verb, as in ``meter.actions``."""
    told: Told = Told()
    addresses: frozenset[str] = frozenset()
    """IP addresses of the provider's SSH host."""
    unsealed: str | None = None
    """Why the box cannot be sealed; None = it can."""
    parked: Parked | None = None
    """What was known when rgt parked it."""
    readonly: bool = False
    since: float | None = None
    """Readings of the box received before this time (steady clock) do not count."""
    now: float
    """Client clock, Unix time."""
    ticks: float
    """The steady clock."""


def gather(given: Situation, verb: Verb, consent: Consent = SILENT) -> Evidence:
    """Return the evidence for and against an action.

    Args:
        given: The known facts.
        verb: Park or destroy.
        consent: What the person agreed to.
    """
    spec = given.state.spec
    ref = spec.billing_ref
    items = given_up(tuple(_items(given, verb, consent)), consent.forfeits)
    results = told(given, verb).results
    found = Evidence(
        box=spec.name,
        verb=verb,
        instance=ref.instance,
        items=items,
        typed=consent.typed,
        kind=ref.kind,
        account=ref.account,
        generation=results.generation if results is not None else None,
    )
    last = name(spec.name, ref.instance, consent.typed, found.forfeits, given.ticks)
    return msgspec.structs.replace(found, items=(*items, last))


IN_BOX = "-inbox"
"""Suffix of the provider kinds in `rgt_tui.providers` that park a box by a command on the box."""


def _items(given: Situation, verb: Verb, consent: Consent) -> Iterator[EvidenceItem]:
    state, spec = given.state, given.state.spec
    kind, instance = spec.billing_ref.kind, spec.billing_ref.instance
    off = _off(given, verb)
    if off is not None:
        words = "parked by rgt, and not started since, by the provider's status"
        state = msgspec.structs.replace(
            state,
            queues=off.queues,
            checkpoints=off.checkpoints,
            found=(),
            clock_skew=off.clock_skew,
        )
        yield EvidenceItem(key=IDENTITY, ok=True, text=words, at=given.meter_at)
    else:
        on_it = verb is Verb.PARK and kind.endswith(IN_BOX)
        yield identity(
            state, given.meter, kind, instance, given.meter_at, given.addresses, on_it=on_it
        )
    yield from quiet(state, given.now, given.ticks, given.meter, given.meter_at, given.since)
    asked = told(given, verb)
    yield from queue(
        state, verb, listed_whole=asked.results is not None and not asked.results.problems
    )
    known, notes = tiers(given, verb)
    yield from notes
    yield from roster(asked, state, given.profile, verb, known, consent.ignored)
    yield provider(given, verb, instance)
    yield seal_before(given)
    if spec.protected:
        yield protected(spec.name, consent.unprotect, given.ticks)
    if given.readonly:
        text = "rgt was started with --readonly: it sends no billing action"
        yield EvidenceItem(key=READONLY, ok=False, text=text, at=given.ticks)


def told(given: Situation, verb: Verb) -> Told:
    """Return the contents of the box: as listed now, or when it was parked."""
    off = _off(given, verb)
    if off is None:
        return given.told
    return msgspec.structs.replace(given.told, results=off.results)


def _off(given: Situation, verb: Verb) -> Parked | None:
    """Return the park's evidence if it is valid.

    It is valid if the machine has been off since and cannot be queried.
    """
    if given.parked is None or given.state.link is Link.LIVE or verb is Verb.PARK:
        return None
    if stands(given.parked, given.meter) is None:
        return given.parked
    return None


def given_up(items: tuple[EvidenceItem, ...], forfeits: frozenset[str]) -> tuple[EvidenceItem, ...]:
    """Return the items with forfeited ones marked: only those that block and may be forfeited."""
    return tuple(
        msgspec.structs.replace(item, forfeited=True)
        if item.key in forfeits and item.forfeitable and not item.ok
        else item
        for item in items
    )


def tiers(given: Situation, verb: Verb) -> tuple[dict[str, str], tuple[EvidenceItem, ...]]:
    """Return the storage tier of each mount point, and an item for each disagreement about one."""
    state = msgspec.structs.replace(given.state, meter=given.meter)
    asked = told(given, verb)
    table = asked.results.mounts if asked.results is not None else ()
    storage = storage_of(state, given.profile, verb, table or sampled_mounts(state))
    paths = [group.path for group in asked.results.groups] if asked.results is not None else []
    notes = tuple(
        EvidenceItem(
            key=f"tiers:{doubt.mount}",
            ok=True,
            doubt=True,
            text=doubt.text,
            at=given.state.seen.sample if doubt.by_box else given.meter_at,
        )
        for doubt in storage.doubts
        if not doubt.if_used or any(holds(doubt.mount, path) for path in paths)
    )
    return storage.known, notes


def queue(state: BoxState, verb: Verb, *, listed_whole: bool = False) -> Iterator[EvidenceItem]:
    """Check the cells: before a destroy each must be done; a park allows waiting ones.

    Args:
        state: The box.
        verb: Park or destroy.
        listed_whole: The box has listed all results, so a missing queue hides none.
    """
    park = verb is Verb.PARK
    fine = True

    def item(about: str, ok: bool, text: str, at: float | None = None) -> EvidenceItem:
        nonlocal fine
        fine = fine and ok
        key = f"{QUEUE}:{about}" if about else QUEUE
        return EvidenceItem(key=key, ok=ok, text=text, at=at, forfeitable=not ok)

    told_at = [state.seen.queues.get(one.path) for one in state.queues]
    known_at = [at for at in told_at if at is not None]
    oldest = min(known_at) if known_at and len(known_at) == len(told_at) else None
    if state.left_out.queues:
        lost = f"not kept of this box: {how_many(state.left_out.queues, 'queue')}; the state of their cells is unknown"
        yield item("left out", park, lost)
    if not state.queues:
        text = "no queue is known on this box"
        more = "" if listed_whole else ", so its results are unknown"
        yield item("", park or listed_whole, text + more, state.seen.sample)
        return
    many = len({cell.name for queue in state.queues for cell in queue.cells}) < sum(
        len(queue.cells) for queue in state.queues
    )
    cells = [cell for queue in state.queues for cell in queue.cells]
    for one in state.queues:
        at = state.seen.queues.get(one.path)
        if one.error:
            text = f"the queue {quoted(one.path)} could not be read: {quoted(one.error)}"
            yield item(f"unread {one.path}", park, text, at)
        for cell in one.cells:
            about = f"{one.path} {cell.name}" if many else cell.name
            if cell.state == "running":
                yield item(about, False, f"by the queue, {quoted(cell.name)} is running", at)
            elif cell.state not in ("done", "waiting") and not park:
                why = f" ({quoted(cell.reason, 80)})" if cell.reason else ""
                yield item(
                    about, False, f"{quoted(cell.name)} is {quoted(cell.state)}, not done{why}", at
                )
    waiting = [cell.name for cell in cells if cell.state == "waiting"]
    if waiting and not park:
        text = f"{len(waiting)} of {how_many(len(cells), 'cell')} never ran: {listed(waiting)}"
        yield item("waiting", False, text, oldest)
    if not fine:
        return
    undone = [f"{cell.name} ({cell.state})" for cell in cells if cell.state != "done"]
    if undone:
        text = f"{len(undone)} of {how_many(len(cells), 'cell')} will continue after a start: {listed(undone)}"
    else:
        text = f"{how_many(len(cells), 'cell')}, all done" if cells else "the queue is empty"
    yield item("", True, text, oldest)


def provider(given: Situation, verb: Verb, instance: str) -> EvidenceItem:
    """Report the provider's current status, and whether it would accept the action."""
    meter, profile = given.meter, given.profile

    def item(ok: bool, text: str, fact: str = "", *, forfeitable: bool = False) -> EvidenceItem:
        return EvidenceItem(
            key=PROVIDER, ok=ok, text=text, at=given.meter_at, fact=fact, forfeitable=forfeitable
        )

    if not instance:
        return item(
            False, "no provider instance is named in the fleet file; use the platform's console"
        )
    if meter.error is not None:
        return item(False, f"the provider's state could not be read: {meter.error}", "unread")
    status = quoted(meter.native_status or meter.lifecycle.value)
    native = action_for(profile, verb) if profile is not None else None
    if profile is not None and native is None:
        return item(False, lacking(profile, verb))
    if given.state.spec.billing_ref.kind == BY_HAND and native is not None:
        return _by_hand(item, native, status)
    if native is not None and native.stops_gpu_meter is None:
        return item(
            False, f"by the profile, {in_both(native)} is not certain to stop the GPU meter"
        )
    if given.action not in meter.actions:
        accepts = listed(list(meter.actions)) or "nothing"
        return item(
            False,
            f"the provider's status is {status}; it does not accept {given.action} now (accepts: {accepts})",
        )
    if native is not None and native.stops_gpu_meter is False:
        return _keeps_running(item, native)
    return item(True, f"{status}, accepts {given.action}")


def _by_hand(item: Callable[..., EvidenceItem], native: BillingAction, status: str) -> EvidenceItem:
    """Report an action that a person performs on the console.

    Rgt sends nothing and cannot verify it.
    """
    if native.stops_gpu_meter is False:
        return _keeps_running(item, native)
    text = f"{status}; no provider in the fleet file: rgt sends nothing, you have to click it ({in_both(native)})"
    return item(True, text, "by hand")


def _keeps_running(item: Callable[..., EvidenceItem], native: BillingAction) -> EvidenceItem:
    note = f": {native.note}" if native.note else ""
    text = f"{in_both(native)} does not stop the GPU meter{note}"
    return item(False, text, "the meter keeps running", forfeitable=True)


def seal_before(given: Situation) -> EvidenceItem:
    """Report whether the box can be sealed.

    It is sealed only right before the call, see `sealed`.
    """
    if given.state.link is not Link.LIVE and is_off(given.meter):
        return EvidenceItem(key=SEAL, ok=True, text="off: nothing on it changes", at=given.meter_at)
    if given.unsealed is not None:
        text = f"the box cannot be sealed for the call: {given.unsealed}"
        return EvidenceItem(
            key=SEAL, ok=False, text=text, at=given.ticks, fact="no seal", forfeitable=True
        )
    return EvidenceItem(
        key=SEAL, ok=True, text="the box is held still right before the call", at=given.ticks
    )


def sealed(evidence: Evidence, seal: Seal | None, problem: str, ticks: float) -> Evidence:
    """Return the evidence with the box's answer to the seal, for the final check before the call.

    Args:
        evidence: The evidence judged before.
        seal: The box's answer; None = there is none.
        problem: Why there is none.
        ticks: The steady clock.
    """
    reasons: list[str] = []
    if seal is None:
        reasons.append(f"the box could not be sealed for the call: {quoted(problem, 300)}")
    else:
        if evidence.generation is not None and seal.generation != evidence.generation:
            reasons.append("files on the box have changed since they were listed: review it again")
        # Forfeited processes may keep running; any new one changes a fact in the reading under the
        # seal.
        if not any(one.kind == QUIET and one.forfeited for one in evidence.items):
            reasons += [f"seen when it was sealed: {quoted(why, 200)}" for why in seal.busy]
    text = "; ".join(reasons) or "the box is held still"
    item = EvidenceItem(key=SEAL, ok=not reasons, text=text, at=ticks)
    items = tuple(item if one.key == SEAL else one for one in evidence.items)
    return msgspec.structs.replace(evidence, items=items)


def under_seal(results: Results, seal: Seal) -> Results:
    """Return the results updated with the seal's answer, for the final check before the call.

    The generation covers the files that could be lost; these are the rest of the list.
    """
    return msgspec.structs.replace(
        results, skipped=seal.skipped, problems=seal.problems, mounts=seal.mounts
    )


def protected(box: str, typed: str, ticks: float) -> EvidenceItem:
    """Report whether the fleet file's protection is lifted for this action."""
    wanted = unprotect_phrase(box)
    if typed == wanted:
        return EvidenceItem(
            key=PROTECTED, ok=True, text="protected, lifted for this action", at=ticks
        )
    text = f"{box} is protected in the fleet file: lift that for this action (--unprotect, or type {wanted!r})"
    return EvidenceItem(key=PROTECTED, ok=False, text=text, at=ticks)


def name(
    box: str,
    instance: str,
    typed: str,
    forfeits: tuple[Forfeit, ...] = (),
    ticks: float | None = None,
) -> EvidenceItem:
    """Compare the typed text character by character: no trimming, no case folding."""

    def item(ok: bool, text: str) -> EvidenceItem:
        return EvidenceItem(key=NAME, ok=ok, text=text, at=ticks)

    wanted = phrase(box, instance, forfeits)
    if typed == wanted and box:
        return item(True, "typed exactly")
    if not typed:
        return item(False, f"not typed yet: {wanted}")
    if typed.strip() == wanted:
        text = "there is a blank before or after the typed name"
    elif typed.casefold() == wanted.casefold():
        text = "upper and lower case differ from the box's name"
    elif not typed.isascii() and wanted.isascii():
        text = "the typed name has letters that only look like those of the box's name"
    elif forfeits:
        text = f"the typed text is not {wanted!r}: something is given up"
    else:
        text = "the typed name is not the box's name"
    return item(False, text)


MOST_BYTES = 64 << 20


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a park, for a destroy that may follow."""

    target: Target
    box: str
    at: float
    """When the park was confirmed, Unix time of the client's clock."""
    started: float | None
    """Start time of the machine, as reported by the provider before the park."""
    tiers: dict[str, str] = {}
    """Mount point → storage tier, as reported by the provider before the park."""
    seal: str
    """Nonce of the seal that it was parked under."""
    results: Results
    """The results listed under the seal, without those that the park itself has erased."""
    queues: tuple[QueueState, ...] = ()
    checkpoints: tuple[Checkpoints, ...] = ()
    clock_skew: float = 0.0


def worth_keeping(evidence: Evidence, seal: str, generation: str) -> bool:
    """Return whether a park's evidence is still usable afterwards: proved, sealed and complete."""
    bare = {IDENTITY, RESULTS, f"{RESULTS}:complete", "seal"}
    given_up = any(
        item.forfeited and (item.key in bare or item.kind == QUIET) for item in evidence.items
    )
    return bool(seal) and evidence.generation == generation and not given_up


def stands(parked: Parked, meter: Meter) -> str | None:
    """Return why the evidence of a park is no longer valid; None = it is.

    Args:
        parked: The evidence.
        meter: The provider's current status.
    """
    if meter.error is not None:
        return "the provider's state could not be read"
    if not is_off(meter):
        return "the machine is not off"
    # Both times are the provider's: no two clocks are compared.
    if meter.started is not None and meter.started != parked.started:
        return "the machine was started since"
    # A changed mount table means that the old one proves nothing about the disks.
    if not meter.tiers.items() <= parked.tiers.items():
        return "the provider names other storage than before the stop"
    return None


class ParkedEvidence:
    """The evidence files of parked boxes, in one directory of mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, parked: Parked) -> None:
        """Save the evidence of a parked box.

        Raises:
            OSError: it was not written.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.publish(self._path(parked.target), msgspec.json.encode(parked))

    def find(self, target: Target) -> Parked | None:
        """Return the evidence of an instance; None if there is none or it cannot be read."""
        try:
            with files.open_regular(self._path(target), follow=False) as file:
                data = file.read(MOST_BYTES)
            parked = msgspec.json.decode(data, type=Parked)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if parked.target == target:
            return parked
        return None

    def forget(self, target: Target) -> None:
        """Delete the evidence of a machine that runs again."""
        with contextlib.suppress(OSError):
            self._path(target).unlink(missing_ok=True)

    def _path(self, target: Target) -> Path:
        return self.folder / f"{target.file_name}.json"


def phrase(box: str, instance: str, forfeits: tuple[Forfeit, ...] = ()) -> str:
    """Return the text that must be typed: the box's name, longer if something is forfeited.

    If the proof of the machine's identity is forfeited, the instance's id must be typed as well.
    """
    if not forfeits:
        return box
    words = f"forfeit {len(forfeits)} of {box}"
    if any(forfeit.key == IDENTITY for forfeit in forfeits):
        return f"{words} {instance}"
    return words


def unprotect_phrase(box: str) -> str:
    """Return the text that must also be typed for a box marked ``protected``."""
    return f"unprotect {box}"
