"""Platforms without an API: the gate judges as usual, a person acts in the web console, and says when it is done.

Nothing is sent from here, and nothing here can say that a meter is off: a box that no longer answers has *probably*
been stopped. What to click stands in the platform's profile.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import msgspec

from rgt_tui.model import (
    BY_HAND,
    CLICK,
    Leftover,
    Lifecycle,
    Meter,
    Permit,
    Profile,
    ProviderRef,
    Verb,
    steady,
)
from rgt_tui.profiles import action_for, in_both, keeps_billing, lacking, load_profile
from rgt_tui.providers.answers import Answers
from rgt_tui.providers.control_plane import (
    Context,
    Instance,
    Market,
    ProviderError,
    printable,
    use_permit,
)
from rgt_tui.providers.registry import IN_BOX

SILENT_S = 60.0
"""Seconds without a word, and several tries, before a box is called silent; a line that breaks is back by then."""


class Sight(msgspec.Struct, frozen=True):
    """What is seen of a box from here, over SSH."""

    answers: bool
    heard: float | None = None
    """When it was heard of last, client clock; None = never."""


def seen(sight: Sight | None, now: float) -> tuple[Lifecycle, str]:
    """Return what follows from the sight of a box, and the words for it; that it is off never does."""
    if sight is None:
        return Lifecycle.UNKNOWN, "rgt does not check whether it answers"
    if sight.answers:
        return Lifecycle.RUNNING, "answers over SSH"
    if sight.heard is None:
        return Lifecycle.UNKNOWN, "not heard of so far"
    since = f"does not answer over SSH since {time.strftime('%H:%M', time.localtime(sight.heard))}"
    if now - sight.heard < SILENT_S:
        return Lifecycle.UNKNOWN, since
    return Lifecycle.UNKNOWN, f"{since}: probably stopped, not confirmed: check the console"


ANSWERS: Answers = {verb: {} for verb in Verb}
"""A person acts: nothing is sent."""


def open_account(ref: ProviderRef, context: Context) -> ConsoleAccount:
    """Return the account that a box belongs to; see `rgt_tui.providers.control_plane.Open`."""
    if ref.kind in IN_BOX:
        return InBoxAccount(ref, load_profile(IN_BOX[ref.kind]), context.clock)
    return ConsoleAccount(ref, load_profile(ref.kind), context.clock)


class ConsoleAccount:
    """An account that only its console knows."""

    def __init__(self, ref: ProviderRef, profile: Profile, clock: Callable[[], float]) -> None:
        self.ref, self.profile, self.clock = ref, profile, clock

    def box(self, instance: str) -> ConsoleBox:
        """Return the stand-in for the control plane of one box."""
        return ConsoleBox(
            msgspec.structs.replace(self.ref, instance=instance), self.profile, self.clock
        )

    async def leftovers(self) -> tuple[Leftover, ...]:
        """Say that nothing tells."""
        raise self.untold("what is billed besides machines")

    def untold(self, what: str) -> ProviderError:
        """Return the error for a question that only the console answers."""
        return ProviderError(
            f"{self.profile.name} has no API that reports {what}: check its console",
            console=self.profile.home_url or "",
            sent=False,
        )

    def market(self) -> Market | None:
        """Return None: machines are rented on the console."""
        return None

    async def close(self) -> None:
        """Nothing is open."""


class ConsoleBox:
    """One box of a platform without an API; see `Provider`."""

    def __init__(self, ref: ProviderRef, profile: Profile, clock: Callable[[], float]) -> None:
        """Stand for a machine.

        Args:
            ref: The machine.
            profile: Of its platform.
            clock: Epoch seconds.
        """
        self._ref, self._profile, self._clock = ref, profile, clock
        self.sight: Callable[[], Sight | None] = lambda: None
        """What is seen of the box now; None = rgt does not check."""

    @property
    def ref(self) -> ProviderRef:
        """The machine, and its account."""
        return self._ref

    @property
    def instance(self) -> str:
        """How its console calls it."""
        return self._ref.instance

    @property
    def console_url(self) -> str:
        """Where a person acts."""
        whose = "your provider" if self._ref.kind == BY_HAND else self._profile.name
        return self._profile.home_url or f"the console of {whose}"

    async def read(self, instance: str) -> Meter:
        """Say what is seen of the box; of the meter nothing is known."""
        now = self._clock()
        life, status = seen(self.sight(), now)
        return Meter(
            lifecycle=life,
            at=now,
            source=f"{self._profile.name} has no API; seen from here",
            native_status=status,
            actions=self._accepts(),
        )

    def _accepts(self) -> tuple[str, ...]:
        return (CLICK,)

    async def list(self) -> tuple[Instance, ...]:
        """Say that nothing tells."""
        raise ProviderError(
            f"{self._profile.name} has no API that lists machines: check its console",
            console=self.console_url,
            sent=False,
        )

    async def start(self) -> str:
        """Say that a person does it."""
        raise ProviderError(
            f"{self._profile.name} starts machines on its console alone; nothing was sent",
            console=self.console_url,
            sent=False,
        )

    async def stop(self, permit: Permit) -> str:
        """Say what to click; nothing is sent."""
        return self._yours(permit, Verb.PARK)

    async def destroy(self, permit: Permit) -> str:
        """Say what to click; nothing is sent."""
        return self._yours(permit, Verb.DESTROY)

    def _yours(self, permit: Permit, verb: Verb) -> str:
        use_permit(permit, verb, self._ref, steady())
        if none := lacking(self._profile, verb):
            raise ProviderError(none, console=self.console_url, sent=False)
        return f"rgt sends nothing; yours to do now: {self._ways(verb)}"

    def _ways(self, verb: Verb) -> str:
        action = action_for(self._profile, verb)
        if action is None:
            return lacking(self._profile, verb)
        ways = action.how or (f"console: {in_both(action)}",)
        return f"{' · '.join(ways)} ({printable(self.instance, 80)}, {self.console_url})"

    def describe(self, verb: Verb, instance: str) -> str:
        """Say that nothing is sent, and what is to be clicked."""
        return f"nothing; you do it: {self._ways(verb)}"

    def native_label(self, verb: Verb) -> str:
        """Return the word on the console's button."""
        action = action_for(self._profile, verb)
        if action is None:
            return ""
        return action.native_label

    def action(self, verb: Verb) -> str:
        """Return the word among ``Meter.actions``."""
        return CLICK

    def keeps_billing(self, verb: Verb, instance: str) -> tuple[str, ...]:
        """Say what the profile says that bills on."""
        return keeps_billing(self._profile, verb)

    def tiers(self, instance: str) -> dict[str, str]:
        """Leave it to the profile."""
        return {}


COMMANDS = {"autodl-inbox": "/usr/bin/shutdown"}
"""``kind`` → what a box of it is switched off with; the full path, since a shell may have another of that name."""
NEVER_RAN = frozenset({126, 127})
"""What a shell ends with where the command cannot be run, or is not there (POSIX, *Exit Status for Commands*)."""


class InBoxAccount(ConsoleAccount):
    """An account that only its console knows, with boxes that switch themselves off."""

    def box(self, instance: str) -> InBox:
        """Return the stand-in for the control plane of one box."""
        return InBox(msgspec.structs.replace(self.ref, instance=instance), self.profile, self.clock)


class InBox(ConsoleBox):
    """One such box: a park is a command on it, a destroy is yours to click."""

    def __init__(self, ref: ProviderRef, profile: Profile, clock: Callable[[], float]) -> None:
        super().__init__(ref, profile, clock)
        self.command = COMMANDS[ref.kind]
        self.run: Callable[[str], Awaitable[int | None]] | None = None
        """Runs a command on the box and returns its exit status; None of it = the line was lost. Set by the fleet."""

    async def stop(self, permit: Permit) -> str:
        """Switch the box off; see `Provider.stop`. The line is lost on the way, as it should be."""
        use_permit(permit, Verb.PARK, self.ref, steady())
        if self.run is None:
            raise ProviderError(
                f"there is no connection to the box; run {self.command} on it",
                console=self.console_url,
                sent=False,
            )
        status = await self.run(self.command)
        if status in NEVER_RAN:
            raise ProviderError(
                f"{self.command} is not there, or may not be run (exit status {status}): is this an ordinary AutoDL "
                "instance? Stop it on the console",
                console=self.console_url,
                sent=False,
            )
        if status:
            raise ProviderError(
                f"{self.command} ended with {status} on the box; look whether it stopped",
                console=self.console_url,
            )
        what = (
            "the line was lost, as it is when a box goes off"
            if status is None
            else "it ended with 0"
        )
        return f"{self.command} was run on the box, {what}"

    def describe(self, verb: Verb, instance: str) -> str:
        """Return the command, and that its outcome cannot be asked for."""
        if verb is not Verb.PARK:
            return super().describe(verb, instance)
        return f"on the box, over the open connection: {self.command} (only the console shows its outcome)"

    def action(self, verb: Verb) -> str:
        """Return the word among ``Meter.actions``."""
        if verb is Verb.PARK:
            return self.command
        return super().action(verb)

    def _accepts(self) -> tuple[str, ...]:
        """A box that nobody reaches cannot be told to switch itself off."""
        sight = self.sight()
        if sight is not None and sight.answers:
            return (self.command, *super()._accepts())
        return super()._accepts()
