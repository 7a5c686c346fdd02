"""Builds the evidence for a billing action from what is known.

Pure: same arguments, same evidence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from rgt_tui import files
from rgt_tui.gate.identity import IDENTITY, check_identity
from rgt_tui.gate.journal import InstanceTarget
from rgt_tui.gate.quiet import QUIET, is_off, list_quiet_items
from rgt_tui.gate.roster import RESULTS, CollectedResults, list_result_items
from rgt_tui.language import (
    english_texts,
    record_text,
    show_recorded,
    speaks_english,
    translate,
)
from rgt_tui.model import (
    BY_HAND,
    BillingAction,
    BillingVerb,
    BoxResults,
    BoxState,
    Checkpoints,
    Evidence,
    EvidenceItem,
    Forfeit,
    FrozenStruct,
    LinkState,
    Meter,
    Profile,
    QueueState,
    Seal,
    how_many,
    join_names,
    quote_name,
)
from rgt_tui.profiles import (
    action_for,
    bilingual_verb,
    describe_missing_verb,
    restore_english,
    storage_of,
)
from rgt_tui.profiles.survival import is_path_below, sampled_mounts

NAME, SEAL, QUEUE, PROVIDER, PODS, PROTECTED, READONLY = (
    "name",
    "seal",
    "queue",
    "provider",
    "pods",
    "protected",
    "readonly",
)


class Consent(FrozenStruct, kw_only=True):
    """What the person agreed to for an action."""

    typed: str = ""
    forfeits: frozenset[str] = frozenset()
    """Keys of items that are given up."""
    ignored: frozenset[str] = frozenset()
    """Keys of items whose files are not results."""
    unprotect: str = ""
    """The text typed to lift ``protected``."""


SILENT = Consent()


class Situation(FrozenStruct, kw_only=True):
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
    told: CollectedResults = CollectedResults()
    addresses: frozenset[str] = frozenset()
    """IP addresses of the provider's SSH host."""
    unsealed: str | None = None
    """Why the box cannot be sealed; None = it can."""
    parked: ParkRecord | None = None
    """What was known when rgt parked it."""
    readonly: bool = False
    since: float | None = None
    """Readings of the box received before this time (steady clock) do not count."""
    now: float
    """Client clock, Unix time."""
    ticks: float
    """The steady clock."""


def gather_evidence(given: Situation, verb: BillingVerb, consent: Consent = SILENT) -> Evidence:
    """Return the evidence for and against an action.

    Args:
        given: The known facts.
        verb: Park or destroy.
        consent: What the person agreed to.
    """
    spec = given.state.spec
    ref = spec.billing_ref
    items = given_up(_list_items(given, verb, consent), consent.forfeits)
    results = choose_collected_results(given, verb).results
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
    last = check_typed_name(spec.name, ref.instance, consent.typed, found.forfeits, given.ticks)
    return msgspec.structs.replace(found, items=(*items, last))


def _list_items(given: Situation, verb: BillingVerb, consent: Consent) -> tuple[EvidenceItem, ...]:
    """Return the items in the person's language, with facts that are the same in every language."""
    items = tuple(_iterate_items(given, verb, consent))
    if speaks_english():
        return items
    profile, told = given.profile, given.told
    if profile is not None:
        profile = restore_english(profile)
    if told.proofs_problem is not None:
        told = msgspec.structs.replace(told, proofs_problem=record_text(told.proofs_problem))
    # Two rgt in two languages must agree on a digest, so texts that are facts are made in English.
    with english_texts():
        in_english = msgspec.structs.replace(given, profile=profile, told=told)
        facts = [one.fact or one.text for one in _iterate_items(in_english, verb, consent)]
    return tuple(
        msgspec.structs.replace(item, fact=fact) for item, fact in zip(items, facts, strict=True)
    )


IN_BOX = "-inbox"
"""Suffix of the provider kinds in `rgt_tui.providers` that park a box by a command on the box."""


def _iterate_items(given: Situation, verb: BillingVerb, consent: Consent) -> Iterator[EvidenceItem]:
    state, spec = given.state, given.state.spec
    kind, instance = spec.billing_ref.kind, spec.billing_ref.instance
    off = _find_valid_park(given, verb)
    if off is not None:
        words = translate("parked by rgt, and not started since, by the provider's status")
        state = msgspec.structs.replace(
            state,
            queues=off.queues,
            checkpoints=off.checkpoints,
            # Nothing runs on a machine that is off; the trainings found before would block without
            # end.
            found=(),
            clock_skew=off.clock_skew,
        )
        yield EvidenceItem(key=IDENTITY, ok=True, text=words, at=given.meter_at)
    else:
        # The command of such a park runs through the connection, so it cannot reach another
        # machine.
        on_it = verb is BillingVerb.PARK and kind.endswith(IN_BOX)
        yield check_identity(
            state, given.meter, kind, instance, given.meter_at, given.addresses, on_it=on_it
        )
    yield from list_quiet_items(
        state, given.now, given.ticks, given.meter, given.meter_at, given.since
    )
    asked = choose_collected_results(given, verb)
    yield from check_queues(
        state, verb, listed_whole=asked.results is not None and not asked.results.problems
    )
    known, notes = find_storage_tiers(given, verb)
    yield from notes
    yield from list_result_items(asked, state, given.profile, verb, known, consent.ignored)
    yield check_provider(given, verb, instance)
    if given.meter.chosen:
        chosen = show_recorded(given.meter.chosen)
        yield EvidenceItem(key=PODS, ok=True, text=chosen, at=given.meter_at)
    for name, content in given.meter.others.items():
        text = translate(
            "{name} ends as well: {content}",
            name=quote_name(name),
            content=show_recorded(content),
        )
        yield EvidenceItem(
            key=f"{PODS}:{name}", ok=False, text=text, at=given.meter_at, forfeitable=True
        )
    yield seal_before(given)
    if spec.protected:
        yield protected(spec.name, consent.unprotect, given.ticks)
    if given.readonly:
        text = translate("rgt was started with --readonly: it sends no billing action")
        yield EvidenceItem(key=READONLY, ok=False, text=text, at=given.ticks)


def choose_collected_results(given: Situation, verb: BillingVerb) -> CollectedResults:
    """Return the contents of the box: as listed now, or when it was parked."""
    off = _find_valid_park(given, verb)
    if off is None:
        return given.told
    return msgspec.structs.replace(given.told, results=off.results)


def _find_valid_park(given: Situation, verb: BillingVerb) -> ParkRecord | None:
    """Return the park's evidence if it is valid.

    It is valid if the machine has been off since and cannot be queried.
    """
    if given.parked is None or given.state.link is LinkState.LIVE or verb is BillingVerb.PARK:
        return None
    if find_park_problem(given.parked, given.meter) is None:
        return given.parked
    return None


def given_up(items: tuple[EvidenceItem, ...], forfeits: frozenset[str]) -> tuple[EvidenceItem, ...]:
    """Return the items with forfeited ones marked: only those that block and may be forfeited."""
    return tuple(
        msgspec.structs.replace(item, forfeited=True)
        # A consent to an item that is fine by now is dropped: the typed phrase counts the rest.
        if item.key in forfeits and item.forfeitable and not item.ok
        else item
        for item in items
    )


def find_storage_tiers(
    given: Situation, verb: BillingVerb
) -> tuple[dict[str, str], tuple[EvidenceItem, ...]]:
    """Return the storage tier of each mount point, and an item for each disagreement about one."""
    state = msgspec.structs.replace(given.state, meter=given.meter)
    asked = choose_collected_results(given, verb)
    if asked.results is not None:
        table = asked.results.mounts
    else:
        table = ()
    # The table of the results is from the same moment as the files; the sample's may be older.
    storage = storage_of(state, given.profile, verb, table or sampled_mounts(state))
    if asked.results is not None:
        paths = [group.path for group in asked.results.groups]
    else:
        paths = []
    notes = tuple(
        EvidenceItem(
            key=f"tiers:{doubt.mount}",
            ok=True,
            doubt=True,
            text=doubt.text,
            at=given.state.seen.sample if doubt.by_box else given.meter_at,
        )
        for doubt in storage.doubts
        # A doubt about a mount without results changes nothing, so it is not worth a line.
        if not doubt.if_used or any(is_path_below(doubt.mount, path) for path in paths)
    )
    return storage.known, notes


def check_queues(
    state: BoxState, verb: BillingVerb, *, listed_whole: bool = False
) -> Iterator[EvidenceItem]:
    """Check the cells: before a destroy each must be done; a park allows waiting ones.

    Args:
        state: The box.
        verb: Park or destroy.
        listed_whole: The box has listed all results, so a missing queue hides none.
    """
    park = verb is BillingVerb.PARK
    fine = True

    def build_item(about: str, ok: bool, text: str, at: float | None = None) -> EvidenceItem:
        nonlocal fine
        fine = fine and ok
        key = f"{QUEUE}:{about}" if about else QUEUE
        return EvidenceItem(key=key, ok=ok, text=text, at=at, forfeitable=not ok)

    told_at = [state.seen.queues.get(one.path) for one in state.queues]
    known_at = [at for at in told_at if at is not None]
    if known_at and len(known_at) == len(told_at):
        # The item is as old as its oldest part: a fresh queue must not hide a stale one.
        oldest = min(known_at)
    else:
        oldest = None
    if state.left_out.queues:
        lost = translate(
            "not kept of this box: {queues}; the state of their cells is unknown",
            queues=how_many(state.left_out.queues, "queue"),
        )
        yield build_item("left out", park, lost)
    if not state.queues:
        text = translate("no queue is known on this box, so its results are unknown")
        if listed_whole:
            text = translate("no queue is known on this box")
        yield build_item("", park or listed_whole, text, state.seen.sample)
        return
    # Cells of two queues may share a name; their items must not share a key.
    many = len({cell.name for queue in state.queues for cell in queue.cells}) < sum(
        len(queue.cells) for queue in state.queues
    )
    cells = [cell for queue in state.queues for cell in queue.cells]
    for one in state.queues:
        at = state.seen.queues.get(one.path)
        if one.error:
            text = translate(
                "the queue {path} could not be read: {error}",
                path=quote_name(one.path),
                error=quote_name(one.error),
            )
            yield build_item(f"unread {one.path}", park, text, at)
        for cell in one.cells:
            if many:
                about = f"{one.path} {cell.name}"
            else:
                about = cell.name
            if cell.state == "running":
                yield build_item(
                    about,
                    False,
                    translate("by the queue, {name} is running", name=quote_name(cell.name)),
                    at,
                )
            elif cell.state not in ("done", "waiting") and not park:
                # Failed cells survive a stop, so only a destroy asks about them.
                why = ""
                if cell.reason:
                    why = f" ({quote_name(cell.reason, 80)})"
                yield build_item(
                    about,
                    False,
                    translate(
                        "{name} is {state}, not done{why}",
                        name=quote_name(cell.name),
                        state=quote_name(translate(cell.state)),
                        why=why,
                    ),
                    at,
                )
    waiting = [cell.name for cell in cells if cell.state == "waiting"]
    if waiting and not park:
        text = translate(
            "{count} of {cells} never ran: {waiting}",
            count=len(waiting),
            cells=how_many(len(cells), "cell"),
            waiting=join_names(waiting),
        )
        yield build_item("waiting", False, text, oldest)
    # A summary of "all done" next to a blocking item would contradict it.
    if not fine:
        return
    undone = [f"{cell.name} ({translate(cell.state)})" for cell in cells if cell.state != "done"]
    if undone:
        text = translate(
            "{count} of {cells} will continue after a start: {undone}",
            count=len(undone),
            cells=how_many(len(cells), "cell"),
            undone=join_names(undone),
        )
    else:
        if cells:
            text = translate("{cells}, all done", cells=how_many(len(cells), "cell"))
        else:
            text = translate("the queue is empty")
    yield build_item("", True, text, oldest)


def check_provider(given: Situation, verb: BillingVerb, instance: str) -> EvidenceItem:
    """Report the provider's current status, and whether it would accept the action."""
    meter, profile = given.meter, given.profile

    def build_item(
        ok: bool, text: str, fact: str = "", *, forfeitable: bool = False
    ) -> EvidenceItem:
        return EvidenceItem(
            key=PROVIDER, ok=ok, text=text, at=given.meter_at, fact=fact, forfeitable=forfeitable
        )

    if not instance:
        return build_item(
            False,
            translate(
                "no provider instance is named in the fleet file; use the platform's console"
            ),
        )
    if meter.error is not None:
        return build_item(
            False,
            translate("the provider's state could not be read: {error}", error=meter.error),
            "unread",
        )
    status = quote_name(meter.native_status or meter.lifecycle.value)
    if profile is not None:
        native = action_for(profile, verb)
    else:
        native = None
    if profile is not None and native is None:
        return build_item(False, describe_missing_verb(profile, verb))
    if given.state.spec.billing_ref.kind == BY_HAND and native is not None:
        return _build_console_item(build_item, native, status)
    # Unknown counts as "does not stop": a person must not leave believing that it costs nothing.
    if native is not None and native.stops_gpu_meter is None:
        return build_item(
            False,
            translate(
                "by the profile, {native} is not certain to stop the GPU meter",
                native=bilingual_verb(native),
            ),
        )
    if given.action not in meter.actions:
        accepts = join_names(list(meter.actions)) or translate("nothing")
        return build_item(
            False,
            translate(
                "the provider's status is {status}; it does not accept {action} now (accepts: "
                "{accepts})",
                status=status,
                action=given.action,
                accepts=accepts,
            ),
        )
    if native is not None and native.stops_gpu_meter is False:
        return _check_keeps_running(build_item, native)
    return build_item(
        True, translate("{status}, accepts {action}", status=status, action=given.action)
    )


def _build_console_item(
    item: Callable[..., EvidenceItem], native: BillingAction, status: str
) -> EvidenceItem:
    """Report an action that a person performs on the console.

    Rgt sends nothing and cannot verify it.
    """
    if native.stops_gpu_meter is False:
        return _check_keeps_running(item, native)
    text = translate(
        "{status}; no provider in the fleet file: rgt sends nothing, you have to click it "
        "({native})",
        status=status,
        native=bilingual_verb(native),
    )
    return item(True, text, "by hand")


def _check_keeps_running(item: Callable[..., EvidenceItem], native: BillingAction) -> EvidenceItem:
    note = ""
    if native.note:
        note = f": {native.note}"
    text = translate(
        "{native} does not stop the GPU meter{note}", native=bilingual_verb(native), note=note
    )
    return item(False, text, "the meter keeps running", forfeitable=True)


def seal_before(given: Situation) -> EvidenceItem:
    """Report whether the box can be sealed.

    It is sealed only right before the call, see `apply_seal`.
    """
    if given.state.link is not LinkState.LIVE and is_off(given.meter):
        return EvidenceItem(
            key=SEAL, ok=True, text=translate("off: nothing on it changes"), at=given.meter_at
        )
    if given.unsealed is not None:
        text = translate(
            "the box cannot be sealed for the call: {unsealed}", unsealed=given.unsealed
        )
        return EvidenceItem(
            key=SEAL, ok=False, text=text, at=given.ticks, fact="no seal", forfeitable=True
        )
    return EvidenceItem(
        key=SEAL,
        ok=True,
        text=translate("the box is held still right before the call"),
        at=given.ticks,
    )


def apply_seal(evidence: Evidence, seal: Seal | None, problem: str, ticks: float) -> Evidence:
    """Return the evidence with the box's answer to the seal, for the final check before the call.

    Args:
        evidence: The evidence judged before.
        seal: The box's answer; None = there is none.
        problem: Why there is none.
        ticks: The steady clock.
    """
    reasons: list[str] = []
    if seal is None:
        reasons.append(
            translate(
                "the box could not be sealed for the call: {problem}",
                problem=quote_name(problem, 300),
            )
        )
    else:
        if evidence.generation is not None and seal.generation != evidence.generation:
            reasons.append(
                translate("files on the box have changed since they were listed: review it again")
            )
        # Forfeited processes may keep running; any new one changes a fact in the reading under the
        # seal.
        if not any(one.kind == QUIET and one.forfeited for one in evidence.items):
            reasons += [
                translate("seen when it was sealed: {why}", why=quote_name(why, 200))
                for why in seal.busy
            ]
    text = "; ".join(reasons) or translate("the box is held still")
    item = EvidenceItem(key=SEAL, ok=not reasons, text=text, at=ticks)
    items = tuple(item if one.key == SEAL else one for one in evidence.items)
    return msgspec.structs.replace(evidence, items=items)


def under_seal(results: BoxResults, seal: Seal) -> BoxResults:
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
            key=PROTECTED, ok=True, text=translate("protected, lifted for this action"), at=ticks
        )
    text = translate(
        "{box} is protected in the fleet file: lift that for this action (--unprotect, or type "
        "{wanted!r})",
        box=box,
        wanted=wanted,
    )
    return EvidenceItem(key=PROTECTED, ok=False, text=text, at=ticks)


def check_typed_name(
    box: str,
    instance: str,
    typed: str,
    forfeits: tuple[Forfeit, ...] = (),
    ticks: float | None = None,
) -> EvidenceItem:
    """Compare the typed text character by character: no trimming, no case folding."""

    def build_item(ok: bool, text: str) -> EvidenceItem:
        return EvidenceItem(key=NAME, ok=ok, text=text, at=ticks)

    wanted = confirmation_phrase(box, instance, forfeits)
    if typed == wanted and box:
        return build_item(True, translate("typed exactly"))
    if not typed:
        return build_item(False, translate("not typed yet: {wanted}", wanted=wanted))
    if typed.strip() == wanted:
        text = translate("there is a blank before or after the typed name")
    elif typed.casefold() == wanted.casefold():
        text = translate("upper and lower case differ from the box's name")
    elif not typed.isascii() and wanted.isascii():
        text = translate("the typed name has letters that only look like those of the box's name")
    elif forfeits:
        text = translate("the typed text is not {wanted!r}: something is given up", wanted=wanted)
    else:
        text = translate("the typed name is not the box's name")
    return build_item(False, text)


MOST_BYTES = 64 << 20


class ParkRecord(FrozenStruct, kw_only=True):
    """The evidence of a park, for a destroy that may follow."""

    target: InstanceTarget
    box: str
    at: float
    """When the park was confirmed, Unix time of the client's clock."""
    started: float | None
    """Start time of the machine, as reported by the provider before the park."""
    tiers: dict[str, str] = {}
    """Mount point → storage tier, as reported by the provider before the park."""
    seal: str
    """Nonce of the seal that it was parked under."""
    results: BoxResults
    """The results listed under the seal, without those that the park itself has erased."""
    queues: tuple[QueueState, ...] = ()
    checkpoints: tuple[Checkpoints, ...] = ()
    clock_skew: float = 0.0


def worth_keeping(evidence: Evidence, seal: str, generation: str) -> bool:
    """Return whether a park's evidence is still usable afterwards: proved, sealed and complete."""
    bare = {IDENTITY, RESULTS, f"{RESULTS}:complete", "seal"}
    given_up = any(
        item.forfeited and (item.key in bare or item.kind in (QUIET, PODS))
        for item in evidence.items
    )
    return bool(seal) and evidence.generation == generation and not given_up


def find_park_problem(parked: ParkRecord, meter: Meter) -> str | None:
    """Return why the evidence of a park is no longer valid; None = it is.

    Args:
        parked: The evidence.
        meter: The provider's current status.
    """
    if meter.error is not None:
        return translate("the provider's state could not be read")
    if not is_off(meter):
        return translate("the machine is not off")
    # Both times are the provider's: no two clocks are compared.
    if meter.started is not None and meter.started != parked.started:
        return translate("the machine was started since")
    # A changed mount table means that the old one proves nothing about the disks.
    if not meter.tiers.items() <= parked.tiers.items():
        return translate("the provider names other storage than before the stop")
    return None


class ParkedEvidence:
    """The evidence files of parked boxes, in one directory of mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save_record(self, parked: ParkRecord) -> None:
        """Save the evidence of a parked box.

        Raises:
            OSError: it was not written.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.replace_file(self._record_path(parked.target), msgspec.json.encode(parked))

    def find_record(self, target: InstanceTarget) -> ParkRecord | None:
        """Return the evidence of an instance; None without one or it cannot be read."""
        try:
            with files.open_regular(self._record_path(target), follow=False) as file:
                data = file.read(MOST_BYTES)
            parked = msgspec.json.decode(data, type=ParkRecord)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if parked.target == target:
            return parked
        return None

    def delete_record(self, target: InstanceTarget) -> None:
        """Delete the evidence of a machine that runs again."""
        with contextlib.suppress(OSError):
            self._record_path(target).unlink(missing_ok=True)

    def _record_path(self, target: InstanceTarget) -> Path:
        return self.folder / f"{target.file_name}.json"


def confirmation_phrase(box: str, instance: str, forfeits: tuple[Forfeit, ...] = ()) -> str:
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
