"""The teardown dialog without its looks: what is enabled when, and what every mishap leads to."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import (
    ActionReview,
    BillingAction,
    BillingVerb,
    EvidenceItem,
    Meter,
    StopPhase,
    StopProgress,
)
from rgt_tui.ui.widgets import Line, Tone, clip_line, text_of, width_of
from rgt_tui.ui.widgets.teardown.confirm_state import (
    GUARD_SECONDS,
    STALE_SECONDS,
    ConfirmState,
    DialogStage,
    describe_mismatch,
    find_changes,
)
from rgt_tui.ui.widgets.teardown.confirm_view import (
    DialogSetting,
    call_lines,
    console_steps,
    dialog_status,
    dialog_title,
    facts_lines,
    progress_line,
    promise_text,
    typing_prompt,
    verb_label,
)
from rgt_tui.ui.widgets.teardown.evidence_list import list_lines, rows_of

NOW = 1_000_000.0
NAME = "vast-demo"


def review(verb: BillingVerb = BillingVerb.DESTROY, /, **different: object) -> ActionReview:
    base = ActionReview(
        NAME, verb, "Destroy" if verb is BillingVerb.DESTROY else "Stop", "9918231",
        verb is BillingVerb.DESTROY, 0.42, 1.11, "USD",
        ("/workspace  38.2 GB",), (), (), (EvidenceItem("quiet", True, "no training process", NOW),), (),
        "DELETE /instances/9918231/", "running", NOW, NOW,
    )  # fmt: skip
    return msgspec.structs.replace(base, **different)


def opened(**different: object) -> ConfirmState:
    return ConfirmState(
        NAME, BillingVerb.DESTROY, NOW, (BillingVerb.PARK, BillingVerb.DESTROY)
    ).apply_review(review(**different), NOW)


def ready() -> ConfirmState:
    return opened().enter_text(NAME)


LATER = NOW + 1.0


def step(phase: StopPhase, text: str = "") -> StopProgress:
    return StopProgress(phase, LATER, text)


def test_nothing_is_on_at_first() -> None:
    state = ConfirmState(NAME, BillingVerb.DESTROY, NOW)
    assert state.typed == ""
    assert state.list_blockers(LATER) == (
        "the review is in progress",
        "the name has not been typed",
    )


def test_the_exact_name_switches_it_on() -> None:
    assert ready().may_confirm(LATER)
    state, send = ready().press_confirm(LATER)
    assert send
    assert state.stage is DialogStage.SENDING
    assert state.in_flight


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "vast-dem",
        "vast-demo ",
        " vast-demo",
        "Vast-demo",
        "vast-demо",
        "vast‐demo",
        "vast-demo\u200b",
        "ｖast-demo",
    ],
)
def test_anything_but_the_exact_name_does_not(typed: str) -> None:
    state = opened().enter_text(typed)
    assert not state.may_confirm(LATER)
    assert state.press_confirm(LATER) == (state, False)


@given(st.text(max_size=20))
def test_only_equality_counts(typed: str) -> None:
    assert opened().enter_text(typed).may_confirm(LATER) == (typed == NAME)
    hint = describe_mismatch(typed, NAME)
    assert (hint == "") == (NAME.startswith(typed))


def test_the_mismatch_is_explained() -> None:
    assert describe_mismatch("vast-demo ", NAME) == "an extra space"
    assert describe_mismatch("VAST-demo", NAME) == "upper and lower case differ"
    assert describe_mismatch("vast-demо", NAME).startswith("character 9 does not match (U+043E")
    assert describe_mismatch("vast-demo2", NAME) == "longer than the text to type"
    assert "character 2" in describe_mismatch("vest", NAME)


def test_mashing_enter_right_after_opening_does_nothing() -> None:
    state = ready()
    for milliseconds in range(0, 300, 25):
        assert not state.press_confirm(NOW + milliseconds / 1000)[1]
    assert state.press_confirm(NOW + GUARD_SECONDS)[1]


def test_a_second_press_sends_nothing_more() -> None:
    state, _ = ready().press_confirm(LATER)
    assert not state.press_confirm(LATER + 1)[1]
    assert state.list_blockers(LATER + 1) == ("a request is being sent",)
    assert state.enter_text("x") == state
    assert state.choose_verb(BillingVerb.PARK, LATER) == state


def test_a_clock_set_back_does_not_lock_the_dialog() -> None:
    assert ready().accepts_input(NOW - 3600)


def test_refusals_switch_it_off_and_are_all_named() -> None:
    state = opened(refusals=("training runs: gpt-b pid 231", "3 files only here")).enter_text(NAME)
    assert state.list_blockers(LATER) == ("training runs: gpt-b pid 231", "3 files only here")


def test_a_change_between_opening_and_ok_is_shown_and_guarded() -> None:
    state = ready().apply_review(review(status="stopped", at=LATER), LATER)
    assert state.changed == ("provider says stopped, was running",)
    assert state.typed == "", "it was typed for something else"
    again = state.enter_text(NAME)
    assert not again.press_confirm(LATER + 0.1)[1]
    assert again.press_confirm(LATER + 0.4)[1]


def test_a_gate_that_closes_in_between_locks() -> None:
    state = ready().apply_review(review(refusals=("training runs",), at=LATER), LATER)
    assert not state.may_confirm(LATER + 1)
    assert state.changed == ("refused now: training runs",)


def test_ages_and_sums_are_no_change() -> None:
    before = review(refusals=("step 655 advanced 1 s ago",))
    after = review(refusals=("step 656 advanced 0 s ago",), spent=1.12, at=LATER)
    assert find_changes(before, after) == ()


def test_sizes_grow_and_names_do_not() -> None:
    shown = review(lost=("/data1  38.2 GB",), refusals=("pid 9 trains",))
    assert find_changes(shown, review(lost=("/data1  38.3 GB",), refusals=("pid 10 trains",))) == ()
    found = find_changes(shown, review(lost=("/data2  38.2 GB",), refusals=("somebody types",)))
    assert [one.text for one in found] == [
        "lost, new: /data2  38.2 GB",
        "lost, no longer: /data1  38.2 GB",
        "refused now: somebody types",
        "no longer refused: pid 9 trains",
    ]


@pytest.mark.parametrize(
    ("different", "part"),
    [
        ({"instance": "7"}, "instance"),
        ({"will_send": "DELETE /other"}, "will now send"),
        ({"per_hour": 0.5}, "price"),
        ({"irreversible": False}, "reversible"),
        ({"native_label": "Terminate"}, "called"),
        ({"lost": ()}, "lost, no longer"),
        ({"kept": ("a",)}, "kept, new"),
        ({"keeps_billing": ("disk",)}, "keeps billing, new"),
        ({"items": ()}, "no longer checked"),
        ({"items": (EvidenceItem("quiet", False, "runs"),)}, "no longer proved"),
    ],
)
def test_what_matters_is_a_change(different: dict[str, object], part: str) -> None:
    found = find_changes(review(), review(**different))
    assert len(found) == 1
    assert part in found[0].text


def test_reasons_that_come_and_go_leave_what_was_typed() -> None:
    """The gate is shut by them as long as they last; nothing else is at stake than was."""
    busy = EvidenceItem("quiet:pid 9", False, "pid 9 trains")
    found = find_changes(
        review(items=(busy, EvidenceItem("quiet:pid 7", False, "pid 7 trains"))),
        review(items=(busy,)),
    )
    assert [(one.text, one.shuts) for one in found] == [("quiet:pid 7 no longer blocks it", False)]
    better = find_changes(review(items=(EvidenceItem("quiet", False, "trains"),)), review())
    assert [(one.text, one.shuts) for one in better] == [("quiet is proved now", False)]
    worse = find_changes(review(), review(items=(*review().items, busy)))
    assert [(one.text, one.shuts) for one in worse] == [("quiet:pid 9 blocks it now", False)]
    assert find_changes(review(items=()), review()) == (), "what holds from the first is no news"
    gone = find_changes(review(), review(items=()))
    assert [(one.text, one.shuts) for one in gone] == [("quiet is no longer checked", True)]
    assert find_changes(review(), review(items=(EvidenceItem("quiet:x", True, "nothing"),))) == ()


def test_a_longer_phrase_is_a_change() -> None:
    found = find_changes(review(phrase="a"), review(phrase="b"))
    assert [(one.text, one.shuts) for one in found] == [("the text to type has changed", True)]


def test_a_failed_review_locks_until_one_works() -> None:
    state = ready().review_failed(BillingVerb.DESTROY, "timeout")
    assert state.list_blockers(LATER) == ("the review failed: timeout",)
    assert state.apply_review(review(at=LATER), LATER).may_confirm(LATER)


def test_an_old_review_does_not_count() -> None:
    assert ready().list_blockers(NOW + STALE_SECONDS + 1) == ("the review is too old",)


def test_changing_the_verb_starts_over() -> None:
    state = ready().choose_verb(BillingVerb.PARK, LATER)
    assert (state.verb, state.review, state.typed) == (BillingVerb.PARK, None, "")
    assert not state.accepts_input(LATER + 0.1)
    assert state.apply_review(review(BillingVerb.DESTROY), LATER) == state
    assert state.review_failed(BillingVerb.DESTROY, "late") == state
    assert state.choose_verb(BillingVerb.PARK, LATER) == state
    assert (
        replace(state, offered=(BillingVerb.PARK,)).choose_verb(BillingVerb.DESTROY, LATER).verb
        is BillingVerb.PARK
    )


def test_the_gate_refuses_at_ok() -> None:
    state = ready().press_confirm(LATER)[0].gate_closed(("training runs",), LATER)
    assert state.stage is DialogStage.REVIEW
    assert state.closed == ("training runs",)
    assert state.typed == ""
    assert not state.may_confirm(LATER + 1)


def test_the_way_to_meter_off() -> None:
    state = ready().press_confirm(LATER)[0]
    state = state.apply_step(step(StopPhase.REQUESTED))
    assert state.stage is DialogStage.SENDING
    state = state.apply_step(step(StopPhase.CONFIRMED)).apply_step(step(StopPhase.METER_OFF))
    assert state.stage is DialogStage.OFF
    assert state.end_request() == state


@pytest.mark.parametrize("phase", [StopPhase.UNCONFIRMED, StopPhase.FAILED])
def test_no_confirmation_is_an_unknown_state(phase: StopPhase) -> None:
    state = (
        ready()
        .press_confirm(LATER)[0]
        .apply_step(step(StopPhase.REQUESTED))
        .apply_step(step(phase, "HTTP 500"))
    )
    assert state.stage is DialogStage.UNKNOWN
    assert state.trouble == "HTTP 500"
    assert not state.press_confirm(LATER + 9)[1]


def test_losing_the_network_in_mid_call_is_an_unknown_state() -> None:
    sending = ready().press_confirm(LATER)[0]
    for state in (sending, sending.apply_step(step(StopPhase.REQUESTED))):
        lost = state.call_failed("connection reset")
        assert lost.stage is DialogStage.UNKNOWN
        assert "check the console" in text_of(dialog_status(lost, SETTING, 100))
    assert sending.end_request().stage is DialogStage.UNKNOWN
    late = sending.apply_step(step(StopPhase.REQUESTED)).gate_closed(("too late",), LATER)
    assert late.stage is DialogStage.UNKNOWN


def test_a_request_followed_elsewhere_locks() -> None:
    assert replace(ready(), elsewhere=True).list_blockers(LATER) == (
        "another request for this box is still in progress",
    )


ACTION = BillingAction("destroy", "Destroy", "destroy", True, False, False)
SETTING = DialogSetting(
    Meter(compute_per_hour=0.40, storage_per_hour=0.02),
    ACTION,
    "Vast.ai",
    LATER,
    "https://console.example",
)


def flat(lines: list[Line]) -> str:
    return "\n".join(text_of(made) for made in lines)


def evidence(state: ConfirmState, width: int, picked: str | None = None) -> list[Line]:
    assert state.review is not None
    return [
        each for _, each in list_lines(rows_of(state.review, state.choice, LATER), picked, width)
    ]


def whole(state: ConfirmState, width: int) -> str:
    return flat(
        [*facts_lines(state, SETTING, width), *evidence(state, width), *call_lines(state, width)]
    )


def test_the_facts_are_all_there() -> None:
    shown = whole(ready(), 100)
    money = (
        "$0.42/h",
        "spent $1.11",
        "saves          compute $0.40/h   storage $0.02/h goes on",
        "nothing found",
    )
    state = ("running", "/workspace", "no training process", " 1s", "this cannot be undone")
    for part in (*money, *state, "DELETE /instances/9918231/"):
        assert part in shown
    assert dialog_title(ready(), SETTING) == "Destroy vast-demo?  Vast.ai instance 9918231"
    assert "nothing is sent" in promise_text(ready())
    by_click = ready()
    assert by_click.review is not None
    by_click = replace(by_click, review=msgspec.structs.replace(by_click.review, by_hand=True))
    assert promise_text(by_click) == "rgt sends nothing here"
    assert "no undo" in text_of(dialog_status(ready(), SETTING, 100))


def test_the_platform_s_note_and_its_ways_by_hand_are_there() -> None:
    review = opened(
        note="The disk bills for ever.", how=("console: Stop", "vastai stop instance <id>")
    )
    shown = whole(review, 100)
    assert "note           The disk bills for ever." in shown
    assert "or by hand     console: Stop" in shown
    assert "vastai stop instance <id>" in shown


def test_a_meter_that_is_off_has_no_price_that_is_stopped_again() -> None:
    """The provider's newest answer counts then, not the review from before the call."""
    sent = ready().press_confirm(LATER)[0].apply_step(step(StopPhase.REQUESTED))
    off = sent.apply_step(step(StopPhase.CONFIRMED)).apply_step(step(StopPhase.METER_OFF))
    meter = Meter(
        per_hour=0.02,
        compute_per_hour=0.0,
        storage_per_hour=0.02,
        spent=1.12,
        native_status="EXITED",
    )
    shown = flat(facts_lines(off, replace(SETTING, meter=meter), 100))
    for part in (
        "$0.02/h",
        "spent $1.12",
        "says EXITED",
        "stopped        compute   storage $0.02/h goes on",
    ):
        assert part in shown
    assert "$0.42/h" not in shown
    assert "$0.00/h" not in shown
    assert "saves   " not in shown


def test_storage_that_costs_nothing_now_is_not_promised_to_be_free_after_the_stop() -> None:
    meter = Meter(compute_per_hour=1.98, storage_per_hour=0.0)
    shown = flat(facts_lines(opened(), replace(SETTING, meter=meter), 100))
    assert "compute $1.98/h   storage goes on" in shown
    assert "$0.00/h" not in shown


def test_lower_bounds_and_what_makes_them_so_are_said() -> None:
    meter = Meter(
        compute_per_hour=0.40,
        storage_per_hour=0.0251,
        at_least=True,
        unpriced=("volume disk",),
        doubt="the list may be wrong",
        books_differ=-0.5,
        books_differ_since=0.0,
    )
    shown = flat(
        facts_lines(opened(at_least=True, spent_at_least=True), replace(SETTING, meter=meter), 100)
    )
    for part in (
        "≥ $0.42/h",
        "spent ≥ $1.11",
        "compute $0.40/h",
        "storage ≥ $0.02/h goes on",
        "without a price that is known: volume disk",
        "the list may be wrong",
        "the provider's books say $0.50 less than price × time since",
    ):
        assert part in shown, part


def test_without_a_control_plane_the_dialog_says_how_to_do_it_by_hand() -> None:
    action = BillingAction(
        "stop",
        "关机",
        "park",
        True,
        False,
        True,
        note="Safe for 15 days.",
        how=("console: 关机", "on the box: /usr/bin/shutdown"),
    )
    meter = Meter(per_hour=1.98, currency="CNY", source="fleet file")
    setting = DialogSetting(meter, action, "AutoDL", LATER, keeps=("data: price unknown",))
    closed = replace(ready(), review=None, review_error="lab has no control plane")
    shown = flat(facts_lines(closed, setting, 100))
    for part in ("no control plane", "¥1.98/h", "console: 关机", "/usr/bin/shutdown", "Safe for 15 days.",
                 "data: price unknown"):  # fmt: skip
        assert part in shown, part
    unpriced = flat(facts_lines(closed, replace(setting, meter=Meter()), 100))
    assert "price unknown" in unpriced


def test_a_verb_that_the_platform_lacks_says_what_there_is_instead() -> None:
    lacks = "Lambda Cloud has no action that would park a box: only Terminate ends the bill"
    setting = DialogSetting(Meter(), None, "Lambda Cloud", LATER, lacks=lacks)
    closed = replace(ready(), review=None, review_error="lab has no control plane")
    assert f"instead {lacks}" in " ".join(flat(facts_lines(closed, setting, 100)).split())


def test_a_price_that_becomes_a_lower_bound_has_changed() -> None:
    assert [one.text for one in find_changes(review(), review(at_least=True))] == [
        "the price per hour changed"
    ]


def test_an_unknown_price_is_never_free() -> None:
    assert "price unknown" in flat(facts_lines(opened(per_hour=None, spent=None), SETTING, 100))


def test_refusals_come_first_and_loud() -> None:
    lines = facts_lines(opened(refusals=("training runs: gpt-b",)), SETTING, 100)
    assert any(span.tone is Tone.TROUBLE and "training runs" in span.text for span in lines[0])


def test_green_is_only_what_is_proved() -> None:
    items = (EvidenceItem("a", True, "fine"), EvidenceItem("b", False, "not fine"))
    lines = evidence(opened(items=items), 60)
    green = [made for made in lines if any(span.tone is Tone.PROVED for span in made)]
    assert [("fine" in text_of(made), "not fine" in text_of(made)) for made in green] == [
        (True, False)
    ]


@given(st.integers(20, 200), st.text(max_size=200), st.booleans())
def test_hostile_texts_stay_in_their_lines(width: int, text: str, ok: bool) -> None:
    state = opened(
        lost=(text,) * 9,
        refusals=(text,),
        will_send=text,
        status=text,
        items=(EvidenceItem(text, ok, text, NOW),),
    ).review_failed(BillingVerb.DESTROY, text)
    parts = (
        *facts_lines(state, SETTING, width),
        *evidence(state, width, text),
        *call_lines(state, width),
    )
    for made in (
        *parts,
        typing_prompt(state, width),
        dialog_status(state, SETTING, width),
        progress_line(state, width),
    ):
        for span in clip_line(made, width):
            assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in span.text)


def test_all_that_is_lost_is_there_however_much_and_however_long() -> None:
    lost = (*(f"/d/{i}" for i in range(40)), " ".join(f"part{i}" for i in range(60)))
    shown = flat(facts_lines(opened(lost=lost), SETTING, 80))
    assert all(f"/d/{i}" in shown for i in range(40)) and "part59" in shown
    assert "more" not in shown and "…" not in shown


def test_the_course_says_when() -> None:
    state = ready().press_confirm(LATER)[0].apply_step(step(StopPhase.REQUESTED))
    text = text_of(progress_line(state, 100))
    assert "requested 13:46:41" in text
    assert "provider confirms …" in text
    assert "✔" not in text
    off = state.apply_step(step(StopPhase.CONFIRMED)).apply_step(step(StopPhase.METER_OFF))
    assert "✔ meter off" in text_of(progress_line(off, 100))


def test_the_platforms_own_word_is_used() -> None:
    state = ConfirmState(NAME, BillingVerb.PARK, NOW, (BillingVerb.PARK,)).apply_review(
        review(BillingVerb.PARK), NOW
    )
    assert verb_label(state, SETTING) == "Stop"
    assert dialog_title(state, SETTING).startswith("Stop vast-demo?")
    assert verb_label(ConfirmState(NAME, BillingVerb.DESTROY, NOW), SETTING) == "Destroy"
    assert (
        verb_label(ConfirmState(NAME, BillingVerb.PARK, NOW), replace(SETTING, action=None))
        == "Stop"
    )
    assert width_of(progress_line(state, 100)) > 0


def test_a_word_that_fits_no_button_is_replaced() -> None:
    state = ConfirmState(NAME, BillingVerb.DESTROY, NOW)
    for word, shown in (
        ("释放", "Destroy (释放)"),
        ("Terminate", "Destroy (Terminate)"),
        ("DESTROY", "Destroy"),
        ("the provider's own stop or destroy", "Destroy"),
        ("\x1b[1mEnd", "Destroy (End)"),
    ):
        action = msgspec.structs.replace(ACTION, native_label=word)
        assert verb_label(state, replace(SETTING, action=action)) == shown


def test_the_name_is_not_listed_as_failed_evidence() -> None:
    items = (EvidenceItem("name", False, "not typed"), EvidenceItem("quiet", True, "nothing runs"))
    shown = whole(opened(items=items), 80)
    assert "not typed" not in shown
    assert "nothing runs" in shown


def test_what_to_click_is_numbered_in_the_words_of_the_console() -> None:
    action = BillingAction(
        "stop", "关机", "park", True, False, True, first="save the data disk",
        how=("console: 关机", "on the box: halt"), confirm_with="the console shows 关机",
    )  # fmt: skip
    setting = DialogSetting(Meter(), action, "AutoDL", LATER, console="https://example.org/list")
    closed = replace(ready(), review=None, review_error="lab has no control plane", by_hand=True)
    shown = flat(facts_lines(closed, setting, 100))
    for number, text in enumerate(
        ("save the data disk", "open the console of AutoDL: https://example.org/list", "click 关机",
         "or on the box: halt", "done when the console shows 关机"), 1
    ):  # fmt: skip
        assert f"{number}              {text}" in shown
    assert "price unknown" in shown
    assert "retried" not in shown and "no review" not in shown
    assert promise_text(closed) == "rgt sends nothing here"
    assert not text_of(typing_prompt(closed, 100)) and not text_of(progress_line(closed, 100))
    bare = BillingAction("stop", "End it", "park", True, False, True)
    assert console_steps(replace(setting, action=bare, console="")) == (
        "open the console of AutoDL",
        "click End it",
    )
    slurm = BillingAction(
        "stop", "scancel", "destroy", True, False, True, how=("shell: scancel <job>",)
    )
    assert console_steps(replace(setting, action=slurm)) == ("shell: scancel <job>",)
    assert console_steps(replace(setting, action=None)) == ()


def test_the_months_of_the_profile_s_facts_are_shown_and_old_ones_are_a_warning() -> None:
    """With a review, and by the profile alone while there is none."""
    facts = ("what Stop does (2026-06)", ("last checked 7 months ago, in 2026-06: it",))
    seen = opened(checked=facts[0], outdated=facts[1])
    bare = ConfirmState(NAME, BillingVerb.DESTROY, NOW)
    alone = replace(SETTING, checked=facts[0], outdated=facts[1])
    for state, setting in ((seen, SETTING), (bare, alone)):
        shown = flat(facts_lines(state, setting, 100) + call_lines(state, 100)).splitlines()
        assert "facts          what Stop does (2026-06)" in shown
        (old,) = [text for text in shown if text.startswith("old facts")]
        assert "last checked 7 months ago" in old
    assert "facts" not in flat(facts_lines(opened(), SETTING, 100))
