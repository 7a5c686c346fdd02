"""Boxes that no API knows, and that can switch themselves off: an ordinary AutoDL instance (普通容器实例).

``/usr/bin/shutdown`` on such an instance is AutoDL's own and ends the charge as 关机 does
(https://www.autodl.com/docs/instance_pro_api/, verified 2026-08). It is run over the connection that stands, so that it
hits the very machine that we speak to. What came of it nobody can ask: a box that is silent afterwards has *probably*
stopped, and a person looks at the console.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from rgt_tui.model.box import ProviderRef
from rgt_tui.model.evidence import Permit, Verb, steady
from rgt_tui.model.profile import Profile
from rgt_tui.profiles import load_profile
from rgt_tui.providers.console import ConsoleAccount, ConsoleBox
from rgt_tui.providers.control_plane import Context, ProviderError, use_permit
from rgt_tui.providers.registry import IN_BOX

COMMANDS = {"autodl-inbox": "/usr/bin/shutdown"}
"""``kind`` → what a box of it is switched off with; the full path, since a shell may have another of that name."""
NEVER_RAN = frozenset({126, 127})
"""What a shell ends with where the command cannot be run, or is not there (POSIX, *Exit Status for Commands*)."""


def open_account(ref: ProviderRef, context: Context) -> InBoxAccount:
    """Return the account that a box belongs to; see `rgt_tui.providers.control_plane.Open`."""
    return InBoxAccount(ref, load_profile(IN_BOX[ref.kind]), context.clock)


class InBoxAccount(ConsoleAccount):
    """An account that only its console knows, with boxes that switch themselves off."""

    def box(self, instance: str) -> InBox:
        """Return what stands for the control plane of one box."""
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
        what = "the line was lost, as it is when a box goes off" if status is None else "it ended with 0"
        return f"{self.command} was run on the box, {what}"

    def describe(self, verb: Verb, instance: str) -> str:
        """Return the command, and that nobody can ask what came of it."""
        if verb is not Verb.PARK:
            return super().describe(verb, instance)
        return f"on the box, over the connection that stands: {self.command} (what came of it only the console tells)"

    def action(self, verb: Verb) -> str:
        """Return the word among ``Meter.actions``."""
        return self.command if verb is Verb.PARK else super().action(verb)

    def _accepts(self) -> tuple[str, ...]:
        """A box that nobody reaches cannot be told to switch itself off."""
        sight = self.sight()
        return (
            (self.command, *super()._accepts()) if sight is not None and sight.answers else super()._accepts()
        )
