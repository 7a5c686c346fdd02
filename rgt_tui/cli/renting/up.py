"""``rgt up``: ask markets for a machine, show the full price, confirm, rent it, and add it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNCONFIRMED, UNREACHABLE, USAGE
from rgt_tui.cli.printing import is_interactive, print_error, prompt_line, wait_indicator
from rgt_tui.cli.renting.account_import import check_kinds, load_known_boxes
from rgt_tui.cli.renting.arriving import (
    NewRental,
    add_rented_machine,
    answer_json,
    build_progress_printer,
    candidate_lines,
    find_name_objection,
    review_lines,
    write_lines,
)
from rgt_tui.cli.set_up.adding import find_target_file
from rgt_tui.cli.teardown.money_arguments import UpArguments
from rgt_tui.files import open_regular
from rgt_tui.fleet.config import FleetFileError, FleetFilePlace, open_place, value_checks
from rgt_tui.fleet.renting import (
    SEARCH_PACES,
    Candidate,
    CreationOutcome,
    CreationResult,
    MachineRental,
    OfferSearch,
    new_token,
    open_creations,
    prefer_kinds,
    search_offers,
)
from rgt_tui.fleet.renting.rental import Creation, market_of, ref_of, renting_accounts
from rgt_tui.fleet.work.job_file import JobFileError, read_job_file
from rgt_tui.gate import (
    JOURNAL,
    ActionState,
    AuditLog,
    InstanceLocked,
    Journal,
    JournalFailed,
    OpenAction,
    describe_open_action,
    read_boot_id,
)
from rgt_tui.gate.audit import default_path
from rgt_tui.language import translate
from rgt_tui.model import ProviderRef, RentalRequest, RentReview, steady_time
from rgt_tui.providers import KINDS, ProviderError, Providers
from rgt_tui.providers.image_registry import CONTAINER_MARKETS, resolve_image

NEXT = "next"
PUBLIC_KEYS = ("id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub")
"""Files in ``~/.ssh``; the first existing one is used."""


def run_up(arguments: UpArguments) -> int:
    """Rent a machine, or resume an interrupted rental; return the exit status."""
    try:
        # First: it may supply the name and the providers that the next checks need.
        _apply_job_file(arguments)
        problem = _find_contradiction(arguments)
        if problem:
            raise FleetFileError(problem)
        check_kinds(arguments.on or ())
        place = find_target_file(arguments.fleet)
        # Before money is spent: a box in an untrusted file could not be stopped from here.
        if place.path.exists() and (doubt := _find_trust_doubt(place)):
            raise FleetFileError(doubt)
        every, _ = load_known_boxes(place)
    except (FleetFileError, JobFileError) as error:
        print_error(error)
        return USAGE
    except OSError as error:
        print_error(translate("cannot read the fleet file: {error}", error=error))
        return USAGE
    refs = [spec.provider for spec in every if spec.provider is not None]
    return running.run_coroutine(_rent_or_resume(arguments, place, refs))


def _apply_job_file(arguments: UpArguments) -> None:
    """Complete the arguments with the job file, if one is named.

    Raises:
        JobFileError: It cannot be used, or no candidate can be rented by rgt.
    """
    if arguments.job is None:
        return
    path = Path(arguments.job)
    job = read_job_file(path)
    # Each `if` only fills gaps: options on the command line win over the file.
    arguments.name = arguments.name or job.name or path.stem
    if arguments.gpu is None:
        if job.resources is None:
            raise JobFileError(
                translate(
                    "{path}: resources.gpu: missing; name the card to rent, or --gpu", path=path
                )
            )
        arguments.gpu = (job.resources.gpu.wish_text, job.resources.gpu.count)
    if arguments.disk is None:
        arguments.disk = job.disk_gb
    if arguments.on is None and job.candidates:
        # A job file is portable: it may name platforms that rgt can watch but not rent at (AutoDL).
        rentable = [kind for kind in job.candidates if kind in KINDS]
        for kind in dict.fromkeys(job.candidates):
            if kind not in rentable:
                print_error(
                    translate(
                        "{kind}: rgt cannot rent there: rent it on its console, then rgt add "
                        "{name} HOST",
                        kind=kind,
                        name=arguments.name,
                    )
                )
        if not rentable:
            raise JobFileError(
                translate("{path}: candidates: rgt can rent at none of them", path=path)
            )
        arguments.on = tuple(rentable)


def _find_trust_doubt(place: FleetFilePlace) -> str | None:
    """Return why a fleet file is not trusted: boxes in it could not be stopped by its settings."""
    try:
        return open_place(place, os.environ).doubt
    except FleetFileError as error:
        # A file without boxes is as good as none.
        if "names no box" in str(error):
            return None
        raise


def _find_contradiction(arguments: UpArguments) -> str:
    """Return why the options contradict each other; empty if they do not."""
    if not arguments.name:
        return translate("name the new box: rgt up NAME --gpu A100, or rgt up --job job.toml")
    if not value_checks.NAME.fullmatch(arguments.name):
        return translate(
            "{name!r} is not a valid box name; use letters, digits, '.', '_' and '-'",
            name=arguments.name,
        )
    if (arguments.confirm is None) != (arguments.evidence is None):
        return translate(
            "--confirm and --evidence are used together: --dry-run --json prints the digest"
        )
    if arguments.dry_run and arguments.confirm is not None:
        return translate("--dry-run rents nothing, so there is nothing to confirm")
    # It rents nothing, so it needs no consent.
    if arguments.written_off is not None:
        return ""
    if arguments.confirm is None and not arguments.dry_run and not is_interactive():
        return translate(
            "cannot prompt here: in a script, run it with --dry-run --json, read the result, and "
            "confirm it with --confirm NAME --evidence DIGEST"
        )
    return ""


def wish_of(arguments: UpArguments, home: Path) -> RentalRequest:
    """Return the requested machine.

    Raises:
        FleetFileError: No GPU is named, or there is no public key.
    """
    if arguments.gpu is None:
        raise FleetFileError(translate("name the GPU: --gpu A100, or --gpu A100:2 for two of them"))
    model, count = arguments.gpu
    if arguments.disk is None:
        # The default of --disk; not in the parser, where a job file could not replace it.
        disk_gb = 100
    else:
        disk_gb = arguments.disk
    return RentalRequest(
        gpu=model,
        gpu_count=count,
        max_per_hour=arguments.max_price,
        currency=arguments.currency,
        spot=arguments.spot,
        disk_gb=disk_gb,
        region=arguments.region,
        image=arguments.image,
        public_key=public_key(arguments.key, home),
    )


def public_key(named: str | None, home: Path) -> str:
    """Return the public key for logging in to the machine.

    Raises:
        FleetFileError: It is missing, or the file is something else, such as the private key.
    """
    if named is not None:
        path = Path(named).expanduser()
    else:
        found = [home / ".ssh" / name for name in PUBLIC_KEYS]
        # If none exists, the message names the usual file.
        path = next((one for one in found if one.is_file()), found[0])
    try:
        with open_regular(path) as file:
            # The largest RSA keys, of 16,384 bits, have some 3,000 characters.
            key_bytes = 16_384
            text = file.read(key_bytes).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise FleetFileError(
            translate(
                "{path} cannot be read: the machine needs your public key; ssh-keygen -t ed25519 "
                "makes one, --key FILE names another",
                path=path,
            )
        ) from None
    # It is sent to a platform: a private key given by mistake must not leave this machine.
    if "PRIVATE" in text or len(text.splitlines()) != 1 or len(text.split()) < 2:
        raise FleetFileError(
            translate(
                "{path} is not a public key (one line such as `ssh-ed25519 AAAA… you@here`)",
                path=path,
            )
        )
    return text


def no_offer(found: OfferSearch) -> tuple[tuple[str, ...], int]:
    """Return why a search has no candidate, and the exit status.

    If no provider answered, the status is `UNREACHABLE`, because nothing is known about the offers.
    """
    reasons: list[str] = []
    if found.answered:
        reasons.append(
            translate(
                "nothing that fits is offered now by {answered}", answered=", ".join(found.answered)
            )
        )
    if found.unanswered:
        reasons.append(
            translate(
                "no answer from {unanswered}: their offers are unknown",
                unanswered=", ".join(found.unanswered),
            )
        )
        return tuple(reasons), UNREACHABLE
    # Order of the reasons: no answer first, because then any other reason may be wrong.
    unfit = [one.kind for one in found.troubles if one.refused and not one.no_market]
    keyless = list(dict.fromkeys(one.kind for one in found.troubles if one.no_key))
    if not found.answered and not unfit and keyless:
        reasons.append(
            translate(
                "no provider was queried: no API key for {names}; set one, then try again (rgt up "
                "--on NAME shows the variable's name)",
                names=", ".join(keyless),
            )
        )
        return tuple(reasons), UNREACHABLE
    return tuple(reasons) or (translate("no queried provider can offer this"),), FAILED


async def _rent_or_resume(
    arguments: UpArguments, place: FleetFilePlace, refs: Sequence[ProviderRef]
) -> int:
    log = AuditLog(default_path(os.environ))
    # The same journal as for stops: one place says which calls may have cost money.
    journal = Journal(log.path.parent / JOURNAL)
    providers = Providers()
    rental = MachineRental(providers, journal, log, clock=time.time, readonly=arguments.readonly)
    run = _RentCommand(arguments, place, providers, rental)
    try:
        # First the open ones: a second machine must not be rented for the same name.
        left = [one for one in open_creations(journal) if one.first.box == arguments.name]
        # An intent alone never reached the platform.
        begun = [one for one in left if one.last.state is not ActionState.INTENT]
        if arguments.written_off is not None:
            return await run.write_off(begun)
        if begun:
            # One at a time; the next call of the command takes the next one.
            return await run.resume_rental(begun[0])
        return await run.search_and_rent(refs)
    except (FleetFileError, JournalFailed) as error:
        print_error(error)
        return USAGE
    except InstanceLocked as held:
        print_error(translate("{held}. Nothing was sent", held=held))
        return FAILED
    # Ctrl-C between the call and its answer: the person must know that money may run.
    except asyncio.CancelledError:
        print_error(
            translate(
                "interrupted: if a call went out, rgt up {name} resumes it without sending "
                "it again",
                name=arguments.name,
            )
        )
        raise
    finally:
        await providers.close()


class _RentCommand:
    """One run of the command."""

    def __init__(
        self,
        arguments: UpArguments,
        place: FleetFilePlace,
        providers: Providers,
        rental: MachineRental,
    ) -> None:
        self._arguments = arguments
        self._name = arguments.name
        self._place = place
        self._providers = providers
        self._rental = rental
        self._say = build_progress_printer(as_json=arguments.json)

    async def search_and_rent(self, refs: Sequence[ProviderRef]) -> int:
        """Search candidates, and rent one."""
        wish = wish_of(self._arguments, Path.home())
        accounts = renting_accounts(self._providers, self._arguments.on or (), refs)
        with wait_indicator(f"asking {', '.join(dict.fromkeys(ref.kind for ref in accounts))} …"):
            found = await search_offers(self._providers, accounts, wish)
        if self._arguments.job is not None:
            # In a job file the order of `candidates` is a wish; otherwise the price decides.
            found = prefer_kinds(found, self._arguments.on or ())
        for trouble in found.troubles:
            # A missing key only matters to a person who named that provider.
            missed = not trouble.no_market and (not trouble.no_key or not found.candidates)
            if self._arguments.on or missed:
                print_error(f"{trouble.kind}: {trouble.text}")
        if not found.candidates:
            reasons, code = no_offer(found)
            return self._print_refusal(reasons, None, found, code)
        if wish.image and any(one.ref.kind in CONTAINER_MARKETS for one in found.candidates):
            image = await resolve_image(wish.image)
            found = msgspec.structs.replace(found, image=image)
            if image.tag_warning:
                print_error(translate("image: {note}", note=image.tag_warning))
        # A name that the fleet file cannot take would leave a paid machine in no file.
        taken = find_name_objection(self._place, self._name, found.candidates[0].ref.kind)
        if self._arguments.dry_run or self._arguments.confirm is not None:
            return await self._rent_by_script(found, wish, taken)
        return await self._rent_by_prompt(found, wish)

    async def _rent_by_script(self, found: OfferSearch, wish: RentalRequest, taken: str) -> int:
        """Show or rent exactly the first candidate: a script cannot confirm another one."""
        candidate = found.candidates[0]
        # Chosen before the call: it becomes the machine's name, by which a lost answer is found
        # again.
        token = new_token(self._name)
        review = await self._rental.review_rental(candidate, wish, self._name, token, taken=taken)
        if review.refusals:
            return self._print_refusal(review.refusals, review, found, FAILED)
        if self._arguments.dry_run:
            self._print_review(review, found)
            return OK
        code = await self._rent_candidate(
            candidate, wish, token, self._arguments.confirm or "", review, found
        )
        # Certainly nothing was created, and there is no other candidate in a script.
        if code is None:
            return FAILED
        return code

    async def _rent_by_prompt(self, found: OfferSearch, wish: RentalRequest) -> int:
        """Show the candidates to a person one at a time, until one is rented."""
        write_lines(candidate_lines(found, wish))
        for number, candidate in enumerate(found.candidates, 1):
            # A new one per candidate: two machines with one token could not be distinguished in a
            # list.
            token = new_token(self._name)
            taken = find_name_objection(self._place, self._name, candidate.ref.kind)
            review = await self._rental.review_rental(
                candidate, wish, self._name, token, taken=taken
            )
            write_lines(review_lines(review))
            if review.refusals:
                for reason in review.refusals:
                    print_error(reason)
                continue
            more = number < len(found.candidates)
            typed = prompt_line(
                translate(
                    'type "{phrase}" to rent it{more}, anything else to leave it: ',
                    phrase=review.phrase,
                    more=translate(", {key} for the next one", key=NEXT) if more else "",
                )
            )
            # A box may be called "next"; then the word rents it.
            if typed == NEXT and more and review.phrase != NEXT:
                continue
            if typed != review.phrase:
                print_error(translate("nothing was rented"))
                return FAILED
            code = await self._rent_candidate(
                candidate, wish, token, typed, review, found, more=more
            )
            if code is not None:
                return code
        print_error(translate("nothing was rented"))
        return FAILED

    async def _rent_candidate(
        self,
        candidate: Candidate,
        wish: RentalRequest,
        token: str,
        typed: str,
        review: RentReview,
        found: OfferSearch,
        *,
        more: bool = False,
    ) -> int | None:
        """Rent one candidate.

        Return None if certainly nothing was created and there are more candidates.
        """
        # Held until the box is in the file: a second rgt must not rent at this account meanwhile.
        with self._rental.lock_account(candidate.ref, self._name) as creation:
            taken = await self._rental.create_machine(
                creation,
                candidate,
                wish,
                self._name,
                token,
                typed=typed,
                digest=self._arguments.evidence,
                # Again: the file may have changed while the person was reading.
                taken=find_name_objection(self._place, self._name, candidate.ref.kind),
                say=self._say,
            )
            if taken.outcome is CreationOutcome.RENTED:
                return await self._add_machine(
                    creation, candidate.ref, taken, wish, candidate, token, review
                )
            if taken.outcome is CreationOutcome.UNKNOWN:
                return self._print_unknown(taken, review, found, token)
        # Only a proof that nothing was created allows another call.
        if taken.outcome is CreationOutcome.NOTHING and more:
            print_error(
                translate("nothing was created there: {reasons}", reasons="; ".join(taken.reasons))
            )
            return None
        return self._print_refusal(taken.reasons, review, found, FAILED)

    def _print_unknown(
        self,
        taken: CreationResult,
        # Without the candidates: a machine exists now, and a script must not pick another one.
        review: RentReview | None,
        found: OfferSearch | None,
        token: str,
    ) -> int:
        # The command contains the token, so that an older rental of that name is not settled by it.
        settle = translate(
            "if the console shows none: rgt up {name} --written-off {token}",
            name=self._name,
            token=token,
        )
        reasons = (*taken.reasons, settle)
        if self._arguments.json:
            answer_json(self._name, review, found, reasons, UNCONFIRMED, token=token)
        for reason in reasons:
            print_error(reason)
        return UNCONFIRMED

    async def _add_machine(
        self,
        creation: Creation,
        ref: ProviderRef,
        taken: CreationResult,
        wish: RentalRequest,
        candidate: Candidate,
        token: str,
        review: RentReview | None,
    ) -> int:
        # RENTED always has one.
        assert taken.machine is not None
        newcomer = NewRental(
            name=self._name,
            ref=ref,
            machine=taken.machine,
            offer=candidate.offer,
            wish=wish,
            token=token,
            identity=self._arguments.key,
        )
        market = market_of(self._providers, ref)
        arrived = await add_rented_machine(
            self._arguments, self._place, self._rental, creation, market, newcomer, self._say
        )
        if self._arguments.json:
            answer_json(
                self._name,
                review,
                None,
                arrived.reasons,
                arrived.code,
                token=token,
                machine=arrived.machine,
            )
        return arrived.code

    async def resume_rental(self, action: OpenAction) -> int:
        """Resume a rental whose request an earlier rgt sent: find its machine, and add it."""
        rent = action.first.rent
        assert rent is not None
        ref = ref_of(action)
        print_error(
            translate(
                "{action}; searching for it, nothing is sent again",
                action=describe_open_action(action),
            )
        )
        # Lists of platforms lag: shortly after the call, the machine may not be in them yet.
        # Measured from the call, by a clock that no person can set and that survives a suspend.
        late = SEARCH_PACES.find_s - action.seconds_since_state(
            time.time(), steady_time(), read_boot_id()
        )
        # Old calls are searched for shortly, too: a list that was read once may be incomplete.
        least_find_seconds = 30.0
        seconds = self._arguments.find or max(least_find_seconds, late)
        with self._rental.lock_account(ref, self._name) as creation:
            market = market_of(self._providers, ref)
            with wait_indicator(translate("looking for {token} …", token=rent.token)):
                taken = await self._rental.find_machine(
                    creation, market, self._name, rent.token, seconds=seconds, say=self._say
                )
            if taken.outcome is not CreationOutcome.RENTED:
                return self._print_unknown(taken, None, None, rent.token)
            candidate = Candidate(ref=ref, offer=rent.offer)
            return await self._add_machine(
                creation, ref, taken, rent.wish, candidate, rent.token, None
            )

    async def write_off(self, begun: Sequence[OpenAction]) -> int:
        """Record that a person declares a rental void, unless the provider still lists it."""
        token = self._arguments.written_off or ""
        action = next(
            (one for one in begun if one.first.rent is not None and one.first.rent.token == token),
            None,
        )
        if action is None:
            print_error(
                translate(
                    "no creation of {name} with the token {token} is open; rgt audit lists open "
                    "ones",
                    name=self._name,
                    token=token,
                )
            )
            return FAILED
        ref = ref_of(action)
        with self._rental.lock_account(ref, self._name) as creation:
            try:
                # A person's statement is checked: a machine that exists is billed even if it was
                # not seen.
                found = await market_of(self._providers, ref).find_by_token(token)
            except ProviderError as error:
                print_error(
                    translate("the list cannot be read, so it stays open: {error}", error=error)
                )
                return UNREACHABLE
            if found:
                ids = ", ".join(one.id for one in found)
                print_error(
                    translate(
                        "{ids} has the token and is billed: rgt up {name} adds it to the fleet",
                        ids=ids,
                        name=self._name,
                    )
                )
                return FAILED
            await self._rental.record_nothing_made(
                creation, self._name, token, translate("you confirmed that nothing was rented")
            )
        self._say(translate("{name}: written off; rgt audit keeps it", name=self._name))
        return OK

    def _print_refusal(
        self,
        reasons: tuple[str, ...],
        review: RentReview | None,
        found: OfferSearch | None,
        code: int,
    ) -> int:
        if self._arguments.json:
            answer_json(self._name, review, found, reasons, code)
            return code
        if review is not None and self._arguments.dry_run:
            write_lines(review_lines(review))
        for reason in reasons:
            print_error(reason)
        print_error(translate("nothing was rented"))
        return code

    def _print_review(self, review: RentReview, found: OfferSearch) -> None:
        if self._arguments.json:
            answer_json(self._name, review, found, (), OK)
            return
        write_lines([*candidate_lines(found, None), *review_lines(review)])
