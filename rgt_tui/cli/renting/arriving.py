"""Output of ``rgt up``, and the steps after renting: wait, read back, add the box, log in."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.cli.commands import FAILED, OK, UNCONFIRMED, UNREACHABLE
from rgt_tui.cli.gathering import make_fleet, running_fleet
from rgt_tui.cli.printing import (
    format_row,
    print_error,
    print_json,
    print_lines,
    prompt_line,
    wait_indicator,
)
from rgt_tui.cli.renting.account_import import box_values
from rgt_tui.cli.running import TerminalQuestions
from rgt_tui.cli.set_up.adding import trust_written_file
from rgt_tui.cli.teardown.down import end_fresh_box
from rgt_tui.cli.teardown.money_arguments import UpArguments
from rgt_tui.fleet import FOR_ONE_QUESTION, Fleet
from rgt_tui.fleet.config import FleetFileError, FleetFilePlace, open_place, read_fleet
from rgt_tui.fleet.config.editing import add_boxes, with_boxes
from rgt_tui.fleet.config.loading import read_source
from rgt_tui.fleet.renting import (
    MachineArrival,
    MachineRental,
    OfferSearch,
    agreement,
    wait_for_ssh,
)
from rgt_tui.fleet.renting.acceptance import (
    RowVerdict,
    checks_path,
    expected_of,
    judge_measurements,
    load_checks,
    measure_box,
)
from rgt_tui.fleet.renting.rental import Creation
from rgt_tui.language import translate
from rgt_tui.model import (
    MACHINE,
    AccountBill,
    BoxQuestion,
    BoxSpec,
    FleetState,
    FrozenStruct,
    LinkState,
    Offer,
    ProviderRef,
    RentalRequest,
    RentReview,
    UnlistedItem,
    clean_text,
    format_money,
)
from rgt_tui.profiles import (
    FIRST_CONTACT,
    ProfileError,
    before_renting,
    load_profile,
    platform_sections,
)
from rgt_tui.providers import Instance, Market
from rgt_tui.ssh import (
    BoxError,
    CatFailed,
    CommandFailed,
    ConfigError,
    DeployFailed,
    NoCommands,
    NoPython,
)


class NewRental(FrozenStruct, kw_only=True):
    """A machine that was rented, and what was agreed."""

    name: str
    ref: ProviderRef
    machine: Instance
    offer: Offer
    wish: RentalRequest
    token: str
    identity: str | None = None
    """The public key file that was given."""


class ArrivalResult(FrozenStruct, kw_only=True):
    """The result of the steps after renting."""

    code: int
    reasons: tuple[str, ...] = ()
    machine: Instance | None = None


def find_name_objection(place: FleetFilePlace, name: str, kind: str) -> str:
    """Return why the fleet file could not accept such a box; empty if it can.

    Call before renting.
    """
    try:
        load_profile(kind)
        text = ""
        if place.path.exists():
            text = read_source(place.path).data.decode("utf-8")
        # A trial: whether the name can be added must be known before money is spent. `.invalid`
        # never resolves (RFC 2606).
        with_boxes(place.path, text, {name: {"host": "new.invalid", "profile": kind}})
    except (FleetFileError, ProfileError) as error:
        return str(error)
    except UnicodeDecodeError:
        return translate("{path} is not UTF-8 text", path=place.path)
    return ""


async def add_rented_machine(
    arguments: UpArguments,
    place: FleetFilePlace,
    rental: MachineRental,
    creation: Creation,
    market: Market,
    newcomer: NewRental,
    say: Callable[[str], None],
) -> ArrivalResult:
    """Wait for a machine, write its box, and log in; offer to end a machine that is wrong.

    That is, one that is not as agreed, or does not answer.
    """
    name, token = newcomer.name, newcomer.token

    async def confirm_seen(machine: Instance) -> None:
        await rental.record_confirmed(creation, name, token, machine)

    # Said before the wait, because the meter runs from now on.
    say(translate("{id} is rented and billed; waiting for its SSH", id=newcomer.machine.id))
    arrival = await wait_for_ssh(
        market,
        newcomer.machine,
        newcomer.offer,
        newcomer.wish,
        token,
        seconds=arguments.timeout,
        say=say,
        # Recorded as soon as the provider lists it: if rgt dies during the wait, the id is known.
        seen=confirm_seen,
    )
    machine = arrival.machine
    doubts: list[str | None] = []
    try:
        # Before the login: a machine that refuses the login must be in the file, to be ended from
        # there.
        await asyncio.to_thread(
            add_boxes,
            place.path,
            {name: values_of(newcomer, machine)},
            lambda before, after: doubts.append(trust_written_file(before, after)),
        )
    except FleetFileError as error:
        print_error(
            translate(
                "{id} is rented and BILLED, but could not be written to the fleet file: {error}",
                id=machine.id,
                error=error,
            )
        )
        print_error(
            translate("fix that; then rgt up {name} resumes without renting again", name=name)
        )
        return ArrivalResult(code=UNCONFIRMED, reasons=(str(error),), machine=machine)
    # The journal's last step: from here on the fleet file has the machine, and a repeated `rgt up`
    # may rent another one of that name.
    await rental.record_listed(creation, name, token, machine.id, str(place.path))
    say(translate("{path}: {name} is a box now", path=place.path, name=name))
    for doubt in doubts:
        if doubt and place.lies_there:
            print_error(doubt)
    spec = next(spec for spec in read_fleet(place.path).boxes if spec.name == name)
    # As it is used from now on: an untrusted file's box has less.
    spec = next((one for one in open_place(place, os.environ).boxes if one.name == name), spec)
    code, reasons = await _log_in_first(arguments, spec, arrival, say)
    if not arguments.json:
        for line in first_contact_lines(spec.profile):
            sys.stdout.write(line)
    if reasons and not _is_script(arguments):
        code = await _offer_end(arguments, spec, reasons, code)
    elif reasons:
        print_error(translate("it is billed: rgt down {name} --destroy ends it", name=name))
    return ArrivalResult(code=code, reasons=reasons, machine=machine)


def _is_script(arguments: UpArguments) -> bool:
    return arguments.confirm is not None or arguments.json or not sys.stdin.isatty()


def values_of(newcomer: NewRental, machine: Instance) -> dict[str, Any]:
    """Return the keys of the box."""
    ref = newcomer.ref
    bill = AccountBill(
        kind=ref.kind, account=ref.account, base_url=ref.base_url, key_env=ref.key_env
    )
    thing = UnlistedItem(
        kind=ref.kind,
        what=MACHINE,
        id=machine.id,
        host=machine.host,
        port=machine.port,
        user=machine.user,
    )
    # Kept in the file, so that a later change of price or card stays an alert.
    agreed = msgspec.structs.asdict(agreement(newcomer.offer, newcomer.wish))
    values = box_values(bill, thing)
    if newcomer.identity:
        # ssh-keygen's naming: the private key's file has no `.pub`.
        private = Path(newcomer.identity).expanduser().absolute().with_suffix("")
    else:
        private = None
    if private is not None and private.is_file():
        values["identity"] = str(private)
    values["asked"] = {key: value for key, value in agreed.items() if value is not None}
    return values


async def _log_in_first(
    arguments: UpArguments, spec: BoxSpec, arrival: MachineArrival, say: Callable[[str], None]
) -> tuple[int, tuple[str, ...]]:
    """Log in for the first time; return the exit status, and what is wrong with the machine."""
    # Differences from the offer count as well: each is a reason to end the machine.
    if not arrival.reached:
        return UNREACHABLE, (arrival.why, *arrival.differs)
    link, why = await _log_in(arguments, spec)
    if link is not LinkState.LIVE:
        return UNREACHABLE, (
            translate("its SSH answers, but the login failed: {why}", why=why),
            *arrival.differs,
        )
    say(translate("{name} answers", name=spec.name))
    reasons = (
        *arrival.differs,
        *(await _test_machine(arguments, spec, say) if arguments.check else ()),
    )
    return (UNCONFIRMED if reasons else OK), reasons


async def _test_machine(
    arguments: UpArguments, spec: BoxSpec, say: Callable[[str], None]
) -> tuple[str, ...]:
    """Test the machine before it is used; return the reasons to refuse it.

    A test that could not run is no reason.
    """
    try:
        with wait_indicator(translate("trying {name} …", name=spec.name)):
            # Quick: minutes of a full test would be billed; `rgt check-box` does the rest.
            found = await measure_box(
                spec, quick=True, accept_new_host_keys=arguments.accept_new_host_key
            )
    except (
        BoxError,
        ConfigError,
        CatFailed,
        CommandFailed,
        DeployFailed,
        NoCommands,
        NoPython,
    ) as error:
        say(
            translate(
                "{name} could not be checked ({error}); to check it: rgt check-box {name}",
                name=spec.name,
                error=error,
            )
        )
        return ()
    rows = judge_measurements(
        found, expected_of(spec), load_checks(checks_path(os.environ)), spec.profile
    )
    for row in rows:
        if row.verdict is RowVerdict.DOUBTFUL:
            say(
                translate(
                    "doubtful: {id}: {words}; {advice}",
                    id=row.id,
                    words=row.text,
                    advice=row.advice,
                )
            )
    return tuple(
        f"{row.id}: {row.text}; {row.advice}" for row in rows if row.verdict is RowVerdict.REFUSE
    )


async def _log_in(arguments: UpArguments, spec: BoxSpec) -> tuple[LinkState, str]:
    """Log in, with prompts for the person; return the state of the connection, and the reason."""
    # A script cannot answer: its unknown host key is refused, unless --accept-new-host-key is
    # given.
    asks = not _is_script(arguments)
    fleet = make_fleet(
        [spec],
        accept_new_host_keys=arguments.accept_new_host_key,
        asks=asks,
        budget=FOR_ONE_QUESTION,
    )
    questions = TerminalQuestions()
    answering: set[asyncio.Task[None]] = set()
    asked: set[int] = set()

    def answer_questions(state: FleetState) -> None:
        for question in state.questions:
            if question.id not in asked:
                # Each state has all open questions, so one would be asked again with every state.
                asked.add(question.id)
                answering.add(asyncio.create_task(_answer_question(fleet, questions, question)))

    unsubscribe = fleet.subscribe(answer_questions)
    async with running_fleet(fleet):
        try:
            return await _logged_in(fleet, spec.name)
        finally:
            unsubscribe()
            for task in answering:
                task.cancel()


async def _logged_in(fleet: Fleet, name: str) -> tuple[LinkState, str]:
    """Wait until a box is live, with retries while the machine is still being set up."""
    link, why = LinkState.CONNECTING, translate("no answer")
    loop = asyncio.get_running_loop()
    # Time for the first login: sshd may answer before the machine has the key.
    meet_seconds = 120.0
    again_seconds = 5.0
    until, again = loop.time() + meet_seconds, loop.time() + again_seconds
    # A person who is asked may take longer.
    while loop.time() < until or link is LinkState.ASKING:
        box = fleet.state.find_box(name)
        if box is not None:
            link, why = box.link, box.reason
        # A refused host key does not become right by waiting; a refused login may, see above.
        if link in (LinkState.LIVE, LinkState.REFUSED_KEY):
            break
        if link in (LinkState.UNREACHABLE, LinkState.REFUSED_LOGIN) and loop.time() >= again:
            again = loop.time() + again_seconds
            # Sooner than the fleet's own pace, whose pauses grow: the person pays while waiting.
            fleet.retry_box(name)
        await asyncio.sleep(0.1)
    return link, why


async def _answer_question(
    fleet: Fleet, questions: TerminalQuestions, question: BoxQuestion
) -> None:
    fleet.answer_question(question.id, await questions.ask_question(question))


async def _offer_end(
    arguments: UpArguments, spec: BoxSpec, reasons: tuple[str, ...], code: int
) -> int:
    """Offer to end a machine that is wrong or does not answer; return the exit status."""
    for reason in reasons:
        print_error(f"{spec.name}: {reason}")
    if (
        # A word of its own, not yes: enter or a habitual "y" must not destroy a machine.
        prompt_line(
            translate(
                'it is new and has no results: type "end" to destroy it, anything else to keep it: '
            )
        )
        != "end"
    ):
        print_error(
            translate("kept, and still billed: rgt down {name} --destroy ends it", name=spec.name)
        )
        return code
    ended = await end_fresh_box(spec, arguments.accept_new_host_key, arguments.readonly)
    if ended == OK:
        return FAILED
    return UNCONFIRMED


def first_contact_lines(platform: str) -> list[str]:
    """Return what to know before using the platform, from its page."""
    profile = load_profile(platform)
    lines = []
    for section in platform_sections(profile):
        if section.title in FIRST_CONTACT:
            lines.append(f"\n{clean_text(f'{profile.name}: {section.title}')}\n")
            lines += [format_row([(row.label, 14, "dim")], row.text) for row in section.rows]
    return lines


# Output of ``rgt up``: offers with their full price, what would be rented, and the JSON for
# scripts.


def build_progress_printer(*, as_json: bool) -> Callable[[str], None]:
    """Return a function that prints progress: to stdout, or to stderr if stdout is for a script."""

    def print_progress(text: str) -> None:
        print_lines(text)
        sys.stdout.flush()

    # Standard output is for the JSON alone.
    if as_json:
        return print_error
    return print_progress


def write_lines(lines: Iterable[str]) -> None:
    """Print lines that already have line ends."""
    for line in lines:
        sys.stdout.write(line)
    sys.stdout.flush()


def candidate_lines(found: OfferSearch, wish: RentalRequest | None) -> Iterator[str]:
    """Yield a line for each candidate, the cheapest first."""
    # Maximum candidates in the list; ``--json`` has all.
    most_listed = 10
    for number, candidate in enumerate(found.candidates[:most_listed], 1):
        yield format_row(
            [(str(number), 3, "dim"), *_offer_cells(candidate.offer)],
            _offer_details(candidate.offer),
        )
    more = len(found.candidates) - most_listed
    if more > 0:
        yield f"{more} more\n"
    yield "\n"


def _offer_cells(offer: Offer) -> list[tuple[str, int, str]]:
    if offer.per_hour is None:
        # Some platforms give the price after the creation only; it is unknown, not free.
        price = "price ?"
    else:
        price = f"{format_money(offer.per_hour, offer.currency)}/h"
    kind = "spot" if offer.spot else "on-demand"
    return [
        (price, 10, "bold"),
        (offer.kind, 10, ""),
        (kind, 9, ""),
        (f"{offer.gpu_count} × {offer.gpu}", 28, ""),
    ]


def _offer_details(offer: Offer) -> str:
    parts = (
        f"{offer.disk_gb} GB" if offer.disk_gb is not None else "",
        offer.region or "anywhere",
        offer.stock or "",
        f"reliability {offer.reliability:.3f}" if offer.reliability is not None else "",
    )
    return ", ".join(part for part in parts if part)


def review_lines(review: RentReview) -> Iterator[str]:
    """Yield what a person must see before a machine is rented."""
    offer = review.offer
    yield (
        clean_text(
            translate(
                "rent {box} at {kind} ({account}): offer {id}",
                box=review.box,
                kind=offer.kind,
                account=review.account,
                id=offer.id,
            )
        )
        + "\n\n"
    )
    parts = (
        ("costs", review.costs),
        ("platform", _list_platform_notes(offer.kind)),
        ("note", [translate(note) for note in offer.notes]),
        (translate("will send"), (review.will_send,)),
    )
    subject_width = 13
    for title, texts in parts:
        shown = title
        for text in texts:
            yield format_row([(shown, subject_width, "dim")], text)
            shown = ""
    yield "\n"


def _list_platform_notes(kind: str) -> tuple[str, ...]:
    """Return what to know before renting from a platform, such as limits of its volumes."""
    try:
        return before_renting(load_profile(kind))
    except ProfileError:
        return (translate("unknown: it has no profile"),)


def answer_json(
    box: str,
    review: RentReview | None,
    found: OfferSearch | None,
    reasons: tuple[str, ...],
    code: int,
    *,
    token: str = "",
    machine: Instance | None = None,
) -> None:
    """Print the result for scripts as one JSON object."""
    body: dict[str, object] = {
        "ok": code == 0,
        "exit": code,
        "box": box,
        "reasons": reasons,
        "digest": review.digest if review is not None else "",
        "phrase": review.phrase if review is not None else "",
        # The exact request, so that a script can log what it confirms.
        "request": review.will_send if review is not None else "",
        "account": review.account if review is not None else "",
        "offer": review.offer if review is not None else None,
        "costs": review.costs if review is not None else (),
        "token": token,
        "machine": machine,
    }
    if found is not None:
        body["candidates"] = [candidate.offer for candidate in found.candidates]
        body["troubles"] = found.troubles
        body["image"] = found.image
    print_json(body)
