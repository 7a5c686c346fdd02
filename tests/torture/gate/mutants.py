"""Guards of the gate, each taken out by itself: the machine has to miss every one of them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from rgt_tui.fleet import billing_actions
from rgt_tui.fleet.box_evidence import Asking
from rgt_tui.gate import decision, evidence, journal, quiet, sealed
from rgt_tui.model.evidence import Evidence, Seal
from rgt_tui.providers import answers, control_plane, stopping

Mutant = Callable[[pytest.MonkeyPatch], None]


def without(kind: str) -> Mutant:
    """Return the mutant that judges everything but one kind of item."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        real = decision.objections

        def lenient(found: Evidence, ticks: float) -> tuple[tuple[str, str], ...]:
            return tuple(pair for pair in real(found, ticks) if pair[0] != kind)

        patch.setattr(decision, "objections", lenient)
        patch.setattr(billing_actions, "objections", lenient)

    return mutate


def stale(patch: pytest.MonkeyPatch) -> None:
    """Take a reading of any age."""
    patch.setattr(decision, "_stale", lambda item, ticks: None)
    patch.setattr(quiet, "FRESH_S", 1e12)


def unsealed(patch: pytest.MonkeyPatch) -> None:
    """Go on as if the box had been sealed, without asking it."""
    real = sealed

    def claimed(evidence: Evidence, seal: Seal | None, problem: str, ticks: float) -> Evidence:
        found = Seal(nonce="0" * 32, generation=evidence.generation or "", at=0.0, seconds=120.0)
        return real(evidence, found, "", ticks)

    patch.setattr(billing_actions, "sealed", claimed)
    patch.setattr(Asking, "seal", property(lambda _: _nothing, lambda *_: None), raising=False)


async def _nothing(*_: object) -> None:
    return None


def changed(patch: pytest.MonkeyPatch) -> None:
    """Do not compare what the seal covers with what was listed."""
    real = sealed

    def trusting(evidence: Evidence, seal: Seal | None, problem: str, ticks: float) -> Evidence:
        same = seal and msgspec.structs.replace(seal, generation=evidence.generation or "")
        return real(evidence, same, problem, ticks)

    patch.setattr(billing_actions, "sealed", trusting)


def reusable(patch: pytest.MonkeyPatch) -> None:
    """Forget which permits were used, and that they expire."""

    class Forgetful(dict[str, float]):
        def __setitem__(self, key: str, value: float) -> None:
            pass

    patch.setattr(control_plane, "_used", Forgetful())


def shared(patch: pytest.MonkeyPatch) -> None:
    """Give no lock: two rgt act on one instance at once."""
    patch.setattr("rgt_tui.gate.journal.fcntl.flock", lambda *_: None)


def careless(patch: pytest.MonkeyPatch) -> None:
    """Begin anew although an earlier action is open."""
    patch.setattr(journal, "_open_of", lambda records: None)


def late(patch: pytest.MonkeyPatch) -> None:
    """Write that the call was sent only when it has been."""
    patch.setattr(journal.Action, "sent", lambda self, call: None)


def hopeful(patch: pytest.MonkeyPatch) -> None:
    """Take every answer that is no success for a proof that nothing was done."""
    patch.setattr(stopping, "proof", lambda *_: answers.Proof.NOTHING)


def remembered(patch: pytest.MonkeyPatch) -> None:
    """Take the evidence of a park for good, whatever was started since."""
    for module in (billing_actions, evidence, evidence):
        patch.setattr(module, "stands", lambda *_: None, raising=False)


MUTANTS: dict[str, Mutant] = {
    **{f"{kind} left out": without(kind) for kind in decision.REQUIRED},
    "age left out": stale,
    "seal skipped": unsealed,
    "generation of the seal not compared": changed,
    "permit reusable": reusable,
    "no lock": shared,
    "an open action is no obstacle": careless,
    "sent is not written": late,
    "every answer proves that nothing was done": hopeful,
    "the evidence of a park is good for ever": remembered,
}
"""What is left out → how."""
