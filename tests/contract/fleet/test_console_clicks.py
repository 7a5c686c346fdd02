"""A box without a provider: the same evidence and gate, the person's click, and their word that closes the journal."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet import BoxSession, EvidenceQueries, GateClosed, OpenActions
from rgt_tui.gate import (
    ActionState,
    AuditLog,
    Journal,
    Receipt,
    read_checked,
    receipt_rows,
    receipt_title,
)
from rgt_tui.model import (
    BY_HAND,
    BillingVerb,
    CopyProof,
    EvidenceItem,
    LinkState,
    ReceivedTimes,
    ResultGroup,
    StopPhase,
)
from tests.contract.fleet.test_teardown import BOX, GB, SAFE, World, world

replace = msgspec.structs.replace
__all__ = ["world"]
OUT = ResultGroup(
    path="/workspace/out", owner="run out", files=2, bytes=GB, newest=1.0, fingerprint="f"
)
COPY = CopyProof(
    path=OUT.path,
    fingerprint="f",
    where="/home/me/pulled/lab/workspace/out",
    files=2,
    bytes=GB,
    sha256="a" * 64,
)


@pytest.fixture
def bare(world: World) -> World:
    """The same box, with no provider in the fleet file."""
    spec = replace(world.session.state.spec, provider=None, port=2222)
    world.session.state = replace(world.session.state, spec=spec, peer=("127.0.0.1", 2222))
    world.meters.watch_boxes({BOX: world.session})
    return world


def journal(world: World) -> list[str]:
    """Return the states of the one journal."""
    (path,) = (world.folder / "journal").glob("*.jsonl")
    return [json.loads(line)["state"] for line in path.read_text().splitlines()]


def item(items: tuple[EvidenceItem, ...], kind: str) -> EvidenceItem:
    return next(one for one in items if one.kind == kind)


def gone(world: World) -> None:
    """The machine is off: nothing answers any more."""
    world.silent = True
    world.session.state = replace(
        world.session.state,
        link=LinkState.UNREACHABLE,
        sample_at=time.time() - 300,
        seen=ReceivedTimes(),
    )


async def clicked(world: World) -> None:
    """Bring it to where the person has to click."""
    await world.review()
    assert await world.execute(BillingVerb.DESTROY) == [StopPhase.YOURS]


async def test_the_review_shows_the_same_evidence_and_that_the_click_is_yours(bare: World) -> None:
    review = await bare.review()
    assert review.refusals == ()
    assert (review.phrase, review.instance) == (BOX, "127.0.0.1:2222")
    assert {"identity", "quiet", "queue", "results", "provider", "seal", "name"} <= {
        one.kind for one in review.items
    }
    identity = item(review.items, "identity")
    assert identity.ok
    assert "127.0.0.1:2222, h, RUNPOD_POD_ID=pod1" in identity.text
    assert review.will_send.startswith("nothing; you do it: console: Terminate")
    assert bare.session.state.meter.source != "Vast", "asking for evidence changes no price"


async def test_results_without_a_copy_refuse_it_as_elsewhere(bare: World) -> None:
    bare.groups = (SAFE, OUT)
    assert "/workspace/out" in await bare.refused()
    assert list((bare.folder / "journal").glob("*.jsonl")) == []


async def test_the_wrong_name_refuses_it(bare: World) -> None:
    await bare.review()
    assert "typed name" in await bare.refused(typed="lab2")


async def test_the_person_is_sent_to_the_console_and_the_box_stays_sealed(bare: World) -> None:
    await clicked(bare)
    assert bare.sent() == []
    assert journal(bare) == ["intent", "sent", "yours"]
    assert bare.log[-1] == "seal", "the seal ends by itself: the person clicks now"
    events = [(line["event"], str(line["text"])) for line in bare.lines()]
    assert [event for event, _ in events] == ["requested", "answer"]
    assert "rgt sends nothing; do it yourself now" in events[1][1]
    assert all(line["evidence"] and line["typed"] == BOX for line in bare.lines())
    review = await bare.review()
    assert "waits since" in review.waits
    assert f"rgt down {BOX} --done" in review.waits
    assert any("settle that first" in why for why in review.refusals), (
        "nothing else begins meanwhile"
    )


async def test_nobody_s_word_counts_while_the_box_answers(bare: World) -> None:
    await clicked(bare)
    with pytest.raises(GateClosed, match="still answers over SSH"):
        await bare.teardown.confirm_done(BOX)
    assert journal(bare)[-1] == "yours"


async def test_a_dead_line_that_nobody_noticed_is_no_answer(bare: World) -> None:
    await clicked(bare)
    bare.silent = True
    assert (await bare.teardown.confirm_done(BOX)).phase is StopPhase.METER_OFF


@pytest.mark.parametrize(
    ("link", "why"),
    [
        (LinkState.REFUSED_LOGIN, "lab answers, and refuses the login"),
        (LinkState.PAUSED, "lab is paused by you, so rgt cannot check"),
        (LinkState.CONNECTING, "still unknown whether lab answers"),
        (LinkState.ASKING, "still unknown whether lab answers"),
    ],
)
async def test_a_box_that_nobody_has_found_silent_is_not_taken_for_off(
    bare: World, link: LinkState, why: str
) -> None:
    await clicked(bare)
    bare.session.state = replace(bare.session.state, link=link)
    with pytest.raises(GateClosed, match=f"{why}.*rgt audit --box lab --seen off"):
        await bare.teardown.confirm_done(BOX)
    assert journal(bare)[-1] == "yours"


async def test_a_box_that_answers_again_since_it_was_last_tried_is_not_taken_for_off(
    bare: World,
) -> None:
    """After a failed try nobody tries for up to two minutes."""
    await clicked(bare)
    live = bare.session.state
    gone(bare)

    async def answers(session: BoxSession) -> None:
        bare.silent = False
        session.state = live

    bare.teardown._asking = EvidenceQueries(**{**vars(bare.teardown._asking), "reach": answers})
    with pytest.raises(GateClosed, match="still answers over SSH"):
        await bare.teardown.confirm_done(BOX)


async def test_another_machine_at_the_address_is_not_the_one_that_was_shown(bare: World) -> None:
    await bare.review()
    hello = bare.session.state.hello
    assert hello is not None
    other = replace(hello, host="another")
    bare.session.state = replace(bare.session.state, hello=other)
    assert "another machine answers at this address" in await bare.refused()


async def test_silence_and_the_person_s_word_close_it(bare: World, tmp_path: Path) -> None:
    bare.groups, bare.proofs = (SAFE, OUT), (COPY,)
    await clicked(bare)
    gone(bare)
    step = await bare.teardown.confirm_done(BOX)
    assert step.phase is StopPhase.METER_OFF
    assert "confirmed by" in step.text
    assert "does not answer" in step.text or "not heard of" in step.text
    assert journal(bare) == ["intent", "sent", "yours", "off"]
    _, chain = read_checked({}, bare.folder / "audit.jsonl")
    assert chain.broken is None
    with pytest.raises(GateClosed, match="lab has no action that waits for a click"):
        await bare.teardown.confirm_done(BOX)
    receipt = bare.teardown.receipts.find_newest(BOX)
    assert receipt is not None
    shown(receipt)


async def test_a_journal_that_cannot_be_read_is_not_one_in_which_nothing_waits(bare: World) -> None:
    await clicked(bare)
    gone(bare)
    (path,) = (bare.folder / "journal").glob("*.jsonl")
    path.write_bytes(b"{torn\n" + path.read_bytes())
    with pytest.raises(GateClosed, match=r"line 1 of the journal .* cannot be read"):
        await bare.teardown.confirm_done(BOX)


def shown(receipt: Receipt) -> None:
    """Check what the receipt of the box says."""
    assert receipt_title(receipt) == "lab: destroyed"
    rows = dict(row for row in receipt_rows(receipt) if row[0])
    text = "\n".join(text for _, text in receipt_rows(receipt))
    assert "confirmed by" in rows["ended"]
    assert f"pulled and verified in {COPY.where}, sha256 {'a' * 64}" in text
    assert "/workspace/a (cell a, 1 file, 1.0 GB): verified durable copy" in text
    assert rows["cost"] == "unknown"
    assert "network-volume" in rows["still bills"]
    assert rows["to end that"]
    assert len(rows["evidence"]) == 64


async def test_an_open_click_is_an_alert_that_no_silence_and_no_time_ends(bare: World) -> None:
    await clicked(bare)
    said: list[str] = []
    open_actions = OpenActions(
        Journal(bare.folder / "journal"),
        AuditLog(bare.folder / "audit.jsonl"),
        {BOX: bare.session},
        bare.meters,
        clock=lambda: time.time() + 3600.0,
        say=lambda text, level: said.append(text),
    )
    assert len(await open_actions.check_actions()) == 1
    assert "waits since" in bare.session.state.open_action
    gone(bare)
    (action,) = await open_actions.check_actions()
    assert (action.last.state, action.first.target.kind) == (ActionState.YOURS, BY_HAND)
    assert len(said) == 1, "it is said once"


async def test_a_box_that_cannot_be_asked_wants_forfeits_and_the_longer_phrase(bare: World) -> None:
    gone(bare)
    bare.fault = "no connection"
    review = await bare.review()
    keys = frozenset(one.key for one in review.items if one.is_blocking and one.forfeitable)
    assert {"identity", "seal"} <= {key.partition(":")[0] for key in keys}
    given = await bare.review(forfeits=keys)
    assert given.refusals == ()
    assert given.phrase == f"forfeit {len(keys)} of {BOX} 127.0.0.1:2222"
