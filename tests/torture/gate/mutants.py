"""Guards of the gate, each taken out by itself: the machine has to miss every one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec
import pytest
from rgt_box import files
from rgt_box.commands import result_rules, result_walk, results

from rgt_tui.fleet import EvidenceQueries, GateClosed, billing_actions, box_evidence
from rgt_tui.gate import apply_seal, decision, evidence, journal, quiet
from rgt_tui.model import BY_HAND, Evidence, LinkState, Seal, StopPhase, StopProgress
from rgt_tui.profiles import survival
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
    patch.setattr(decision, "_find_age_problem", lambda item, ticks: None)
    patch.setattr(quiet, "FRESH_S", 1e12)


def unsealed(patch: pytest.MonkeyPatch) -> None:
    """Go on as if the box had been sealed, without asking it."""
    real = apply_seal

    def claimed(evidence: Evidence, seal: Seal | None, problem: str, ticks: float) -> Evidence:
        found = Seal(
            nonce="0" * 32,
            generation=evidence.generation or "",
            at=0.0,
            seconds=120.0,
            skipped=(),
            problems=(),
            mounts=(),
        )
        return real(evidence, found, "", ticks)

    patch.setattr(billing_actions, "apply_seal", claimed)
    patch.setattr(
        EvidenceQueries, "seal", property(lambda _: _nothing, lambda *_: None), raising=False
    )


async def _nothing(*_: object) -> None:
    return None


def changed(patch: pytest.MonkeyPatch) -> None:
    """Do not compare what the seal covers with what was listed."""
    real = apply_seal

    def trusting(evidence: Evidence, seal: Seal | None, problem: str, ticks: float) -> Evidence:
        same = seal and msgspec.structs.replace(seal, generation=evidence.generation or "")
        return real(evidence, same, problem, ticks)

    patch.setattr(billing_actions, "apply_seal", trusting)


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
    patch.setattr(journal, "_newest_open_action", lambda records: None)


def late(patch: pytest.MonkeyPatch) -> None:
    """Write that the call was sent only when it has been."""
    patch.setattr(journal.JournaledAction, "record_sent", lambda self, call: None)


def hopeful(patch: pytest.MonkeyPatch) -> None:
    """Take every answer that is no success for a proof that nothing was done."""
    patch.setattr(stopping, "action_proof", lambda *_: answers.AnswerProof.NOTHING)


def remembered(patch: pytest.MonkeyPatch) -> None:
    """Take the evidence of a park for good, whatever was started since."""
    for module in (billing_actions, evidence):
        patch.setattr(module, "find_park_problem", lambda *_: None, raising=False)


def hidden_by_place(patch: pytest.MonkeyPatch) -> None:
    """Take all of /usr for the system's own."""
    patch.setitem(
        result_rules._PATHS, "/usr", result_rules.ExclusionRule("the system's own", True, True)
    )


def hidden_by_marker(patch: pytest.MonkeyPatch) -> None:
    """Let an environment cover its siblings."""
    patch.setitem(result_rules.MARKERS, result_rules.VENV, result_rules.IN_ENVIRONMENT | {"out"})


def dated_by_clock(patch: pytest.MonkeyPatch) -> None:
    """Take every file whose ctime is older than the machine for one of the image."""
    patch.setattr(result_walk, "UNPACKED_NS", -(10**20))


def dated_by_provider(patch: pytest.MonkeyPatch) -> None:
    """Believe the date of creation, whatever is older on the box or by the provider itself."""
    patch.setattr(results, "why_machine_is_older", lambda *_: "")
    patch.setattr(box_evidence, "created_at", lambda meter, *_: (meter.created, ""))


def stored_by_word(patch: pytest.MonkeyPatch) -> None:
    """Believe what is said of storage, without the box's mount table."""
    patch.setattr(survival, "_without_witness", lambda *_: iter(()))
    patch.setattr(result_walk.MountTable, "is_apart", lambda self, point: True)


def followed(patch: pytest.MonkeyPatch) -> None:
    """Read a result through whatever stands at its path."""
    patch.setattr(
        files.CachedOpener,
        "open_file",
        lambda self, path: files.open_regular(path, follow_links=True),
    )


def clicked_unjudged(patch: pytest.MonkeyPatch) -> None:
    """Send a person to the console whatever speaks against it."""
    real = decision.objections

    def lenient(found: Evidence, ticks: float) -> tuple[tuple[str, str], ...]:
        return () if found.kind == BY_HAND else real(found, ticks)

    patch.setattr(decision, "objections", lenient)
    patch.setattr(billing_actions, "objections", lenient)


def worded_unjudged(patch: pytest.MonkeyPatch) -> None:
    """Take the word that it is done where rgt has left nothing to the person: no evidence was judged."""
    real = billing_actions.Teardown.confirm_done

    async def done(self: billing_actions.Teardown, box: str) -> StopProgress:
        with contextlib.suppress(GateClosed):
            return await real(self, box)
        return StopProgress(
            phase=StopPhase.METER_OFF, at=0.0, text="done on the console, by a word alone"
        )

    patch.setattr(billing_actions.Teardown, "confirm_done", done)


def worded_while_it_answers(patch: pytest.MonkeyPatch) -> None:
    """Do not look whether the box answers before the word is taken: what was seen last may be long ago."""
    patch.setattr(billing_actions, "SILENT", frozenset(LinkState))
    patch.setattr(
        EvidenceQueries, "reach", property(lambda _: _nothing, lambda *_: None), raising=False
    )


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
    "a rule by place hides results": hidden_by_place,
    "an environment covers what lies next to it": hidden_by_marker,
    "an old ctime alone makes a file the image's": dated_by_clock,
    "the date of creation has no second witness": dated_by_provider,
    "storage has no second witness": stored_by_word,
    "a link in the place of a result is followed": followed,
    "a click needs no evidence": clicked_unjudged,
    "a word is taken where no evidence was judged": worded_unjudged,
    "a word is taken while the box answers": worded_while_it_answers,
}
"""What is left out → how."""
