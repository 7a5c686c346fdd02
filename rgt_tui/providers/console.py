"""Platforms without an API: the gate judges, and a person acts in the web console and confirms it.

rgt sends nothing and cannot know whether a meter is off: a box that no longer answers has
*probably* been stopped. The platform's profile says what to click.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    BY_HAND,
    CLICK,
    BillingVerb,
    FrozenStruct,
    Leftover,
    Lifecycle,
    Meter,
    Permit,
    Profile,
    ProviderRef,
    steady_time,
)
from rgt_tui.profiles import (
    action_for,
    bilingual_verb,
    describe_missing_verb,
    list_kept_charges,
    load_profile,
)
from rgt_tui.providers.answers import Answers
from rgt_tui.providers.control_plane import (
    AccountContext,
    Instance,
    Market,
    ProviderError,
    make_printable,
    use_permit,
)
from rgt_tui.providers.registry import IN_BOX

SILENT_S = 60.0
"""Seconds of silence, after several attempts, until a box counts as silent; short outages are over
by then.
"""


class BoxSighting(FrozenStruct):
    """What rgt sees of a box, over SSH."""

    answers: bool
    heard: float | None = None
    """Client clock of its last answer; None = never."""


def judge_sighting(sight: BoxSighting | None, now: float) -> tuple[Lifecycle, str]:
    """Return the state that follows from a sighting, and its text.

    Silence never means *stopped*.
    """
    if sight is None:
        return Lifecycle.UNKNOWN, translate("rgt does not check whether it answers")
    if sight.answers:
        return Lifecycle.RUNNING, translate("answers over SSH")
    if sight.heard is None:
        return Lifecycle.UNKNOWN, translate("not heard of so far")
    since = translate(
        "does not answer over SSH since {time}",
        time=time.strftime("%H:%M", time.localtime(sight.heard)),
    )
    # UNKNOWN on both sides of the limit: a crash and a broken network look the same from here.
    if now - sight.heard < SILENT_S:
        return Lifecycle.UNKNOWN, since
    return Lifecycle.UNKNOWN, translate(
        "{since}: probably stopped, not confirmed: check the console", since=since
    )


ANSWERS: Answers = {verb: {} for verb in BillingVerb}
"""Empty, because a person acts and nothing is sent."""


def open_account(ref: ProviderRef, context: AccountContext) -> ConsoleAccount:
    """Return the account that a box belongs to; see `rgt_tui.providers.control_plane.Open`."""
    if ref.kind in IN_BOX:
        return InBoxAccount(ref, load_profile(IN_BOX[ref.kind]), context.clock)
    return ConsoleAccount(ref, load_profile(ref.kind), context.clock)


class ConsoleAccount:
    """An account that only its console knows."""

    def __init__(self, ref: ProviderRef, profile: Profile, clock: Callable[[], float]) -> None:
        self.ref, self.profile, self.clock = ref, profile, clock

    def open_control_plane(self, instance: str) -> ConsoleBox:
        """Return the stand-in for the control plane of one box."""
        return ConsoleBox(
            msgspec.structs.replace(self.ref, instance=instance), self.profile, self.clock
        )

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """Raise the error that no API reports leftovers."""
        raise self.no_api_error(translate("what is billed besides machines"))

    def no_api_error(self, what: str) -> ProviderError:
        """Return the error for a question that only the console answers."""
        return ProviderError(
            translate(
                "{name} has no API that reports {what}: check its console",
                name=self.profile.name,
                what=what,
            ),
            console=self.profile.home_url or "",
            sent=False,
        )

    def open_market(self) -> Market | None:
        """Return None: machines are rented on the console."""
        return None

    async def close(self) -> None:
        """Do nothing: there are no connections."""


class ConsoleBox:
    """One box of a platform without an API; see `Provider`."""

    def __init__(self, ref: ProviderRef, profile: Profile, clock: Callable[[], float]) -> None:
        """Create the stand-in for a machine's control plane.

        Args:
            ref: The machine.
            profile: Profile of its platform.
            clock: Returns Unix time.
        """
        self._ref, self._profile, self._clock = ref, profile, clock
        # Set by the fleet, which has the connection; a command line without one sees nothing.
        self.sight: Callable[[], BoxSighting | None] = lambda: None
        """Returns the current sighting of the box; None = rgt does not check."""

    @property
    def ref(self) -> ProviderRef:
        """The machine, and its account."""
        return self._ref

    @property
    def instance(self) -> str:
        """The machine's name on its console."""
        return self._ref.instance

    @property
    def console_url(self) -> str:
        """The page on which a person acts."""
        if self._ref.kind == BY_HAND:
            whose = "your provider"
        else:
            whose = self._profile.name
        return self._profile.home_url or f"the console of {whose}"

    async def read(self, instance: str) -> Meter:
        """Return what is seen of the box; nothing is known about its meter."""
        now = self._clock()
        life, status = judge_sighting(self.sight(), now)
        return Meter(
            lifecycle=life,
            at=now,
            source=f"{self._profile.name} has no API; seen from here",
            native_status=status,
            actions=self._accepted_actions(),
        )

    def _accepted_actions(self) -> tuple[str, ...]:
        return (CLICK,)

    async def list(self) -> tuple[Instance, ...]:
        """Raise the error that no API lists machines."""
        raise ProviderError(
            translate(
                "{name} has no API that lists machines: check its console", name=self._profile.name
            ),
            console=self.console_url,
            sent=False,
        )

    async def start(self) -> str:
        """Raise the error that a person must start it."""
        raise ProviderError(
            translate(
                "{name} starts machines only on its console; nothing was sent",
                name=self._profile.name,
            ),
            console=self.console_url,
            sent=False,
        )

    async def stop(self, permit: Permit) -> str:
        """Return what to click; nothing is sent."""
        return self._leave_to_person(permit, BillingVerb.PARK)

    async def destroy(self, permit: Permit) -> str:
        """Return what to click; nothing is sent."""
        return self._leave_to_person(permit, BillingVerb.DESTROY)

    def _leave_to_person(self, permit: Permit, verb: BillingVerb) -> str:
        # Used up although nothing is sent: the rules of the gate hold for a click, too.
        use_permit(permit, verb, self._ref, steady_time())
        if none := describe_missing_verb(self._profile, verb):
            raise ProviderError(none, console=self.console_url, sent=False)
        return translate(
            "rgt sends nothing; do it yourself now: {verb}", verb=self._describe_steps(verb)
        )

    def _describe_steps(self, verb: BillingVerb) -> str:
        action = action_for(self._profile, verb)
        if action is None:
            return describe_missing_verb(self._profile, verb)
        ways = action.how or (f"console: {bilingual_verb(action)}",)
        return f"{' · '.join(ways)} ({make_printable(self.instance, 80)}, {self.console_url})"

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the text that nothing is sent, and what to click."""
        return translate("nothing; you do it: {verb}", verb=self._describe_steps(verb))

    def native_label(self, verb: BillingVerb) -> str:
        """Return the label of the console's button."""
        action = action_for(self._profile, verb)
        if action is None:
            return ""
        return action.native_label

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word among ``Meter.actions``."""
        return CLICK

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        """Return what keeps billing according to the profile."""
        return list_kept_charges(self._profile, verb)

    def list_tiers(self, instance: str) -> dict[str, str]:
        """Return nothing: the profile decides."""
        return {}


COMMANDS = {"autodl-inbox": "/usr/bin/shutdown"}
"""``kind`` → the command that switches off a box of it; a full path, in case the shell has another
one.
"""
NEVER_RAN = frozenset({126, 127})
"""Exit statuses of a shell for a command that cannot run or is missing (POSIX, *Exit Status for
Commands*).
"""


class InBoxAccount(ConsoleAccount):
    """An account that only its console knows, with boxes that switch themselves off."""

    def open_control_plane(self, instance: str) -> SelfStoppingBox:
        """Return the stand-in for the control plane of one box."""
        return SelfStoppingBox(
            msgspec.structs.replace(self.ref, instance=instance), self.profile, self.clock
        )


class SelfStoppingBox(ConsoleBox):
    """A box that is parked by a command on it, and destroyed by a person on the console."""

    def __init__(self, ref: ProviderRef, profile: Profile, clock: Callable[[], float]) -> None:
        super().__init__(ref, profile, clock)
        self.command = COMMANDS[ref.kind]
        self.run: Callable[[str], Awaitable[int | None]] | None = None
        """Runs a command on the box and returns its exit status; None = the connection was lost.
        Set by the fleet.
        """

    async def stop(self, permit: Permit) -> str:
        """Switch the box off; see `Provider.stop`.

        The connection is lost in the process, as expected.
        """
        # Before the checks below, as everywhere: a permit that met an obstacle is not kept for
        # later.
        use_permit(permit, BillingVerb.PARK, self.ref, steady_time())
        if self.run is None:
            raise ProviderError(
                translate(
                    "there is no connection to the box; run {command} on it", command=self.command
                ),
                console=self.console_url,
                sent=False,
            )
        status = await self.run(self.command)
        # sent=False only here: for these two alone it is sure that the command did nothing.
        if status in NEVER_RAN:
            raise ProviderError(
                translate(
                    "{command} is missing or not executable (exit status {status}): is this "
                    "an ordinary "
                    "AutoDL instance? Stop it on the console",
                    command=self.command,
                    status=status,
                ),
                console=self.console_url,
                sent=False,
            )
        if status:
            raise ProviderError(
                translate(
                    "{command} ended with {status} on the box; check whether it stopped",
                    command=self.command,
                    status=status,
                ),
                console=self.console_url,
            )
        # The box took the connection along, which is the expected end, but no proof of it.
        if status is None:
            what = translate("the connection was lost, as when a box stops")
        else:
            what = translate("exit status 0")
        return translate("{command} was run on the box, {what}", command=self.command, what=what)

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the command, and that its outcome cannot be queried."""
        if verb is not BillingVerb.PARK:
            return super().describe_call(verb, instance)
        return translate(
            "on the box, over the open connection: {command} (only the console shows its outcome)",
            command=self.command,
        )

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word among ``Meter.actions``."""
        if verb is BillingVerb.PARK:
            return self.command
        return super().native_action(verb)

    def _accepted_actions(self) -> tuple[str, ...]:
        """Return the accepted actions. The command needs a box that answers."""
        sight = self.sight()
        # Without a connection, the click on the console is the only way that is left.
        if sight is not None and sight.answers:
            return (self.command, *super()._accepted_actions())
        return super()._accepted_actions()
