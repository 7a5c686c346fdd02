"""What a person ticked is there after a restart, belongs to that very machine, and is never lost in silence."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec, CheckResult, CheckStatus, PersonTick, ProviderRef
from rgt_tui.store import TicksError, save_tick, ticks_of, ticks_path, with_ticks

RENTED = BoxSpec(name="lab", host="1.2.3.4", provider=ProviderRef(kind="vast", instance="77"))
YES = PersonTick(ticked=True, at=100.0, by="han", note="both read well")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def test_a_tick_outlives_rgt_and_a_new_name_and_no_new_machine_inherits_it(
    env: dict[str, str],
) -> None:
    assert ticks_of(RENTED, env) == {}
    save_tick(RENTED, "4.6", YES, env)
    assert ticks_of(RENTED, env) == {"4.6": (YES,)}
    assert ticks_of(msgspec.structs.replace(RENTED, name="other", host="9.9.9.9"), env) == {
        "4.6": (YES,)
    }
    again = msgspec.structs.replace(RENTED, provider=ProviderRef(kind="vast", instance="78"))
    assert ticks_of(again, env) == {}
    plain = BoxSpec(name="lab", host="1.2.3.4")
    save_tick(plain, "4.6", YES, env)
    assert ticks_of(msgspec.structs.replace(plain, host="1.2.3.5"), env) == {}
    assert ticks_path(env).stat().st_mode & 0o777 == 0o600


def test_what_is_taken_back_is_kept_and_what_is_remembered_is_bounded(env: dict[str, str]) -> None:
    for place in range(30):
        tick = PersonTick(
            ticked=place % 2 == 0, at=float(place), by="h" * 999, note="n\x1b[2J" * 999
        )
        save_tick(RENTED, "4.6", tick, env)
    said = ticks_of(RENTED, env)["4.6"]
    assert len(said) == 20 and said[-1].at == 29.0 and not said[-1].ticked
    assert len(said[0].by) == 64 and len(said[0].note) == 500 and "\x1b" not in said[0].note


@pytest.mark.parametrize(
    "bad", [b"", b"{", b'{"version": 1, "boxes": 7}', b'{"version": 9, "boxes": {}}', b"\xff"]
)
def test_a_file_that_cannot_be_used_is_named_and_stays_as_it_is(
    env: dict[str, str], bad: bytes
) -> None:
    path = ticks_path(env)
    path.parent.mkdir(parents=True)
    path.write_bytes(bad)
    for ask in (lambda: ticks_of(RENTED, env), lambda: save_tick(RENTED, "4.6", YES, env)):
        with pytest.raises(TicksError, match="move it away") as caught:
            ask()
        assert str(path) in str(caught.value)
    assert path.read_bytes() == bad


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "rgt").write_text("no directory")
    with pytest.raises(TicksError, match="nothing was ticked"):
        save_tick(RENTED, "4.6", YES, {"XDG_STATE_HOME": str(tmp_path)})


def result(status: CheckStatus) -> CheckResult:
    return CheckResult("4.6", 4, "you compared two samples", status, "tick it")


def test_the_last_word_counts_and_only_where_a_person_is_the_judge() -> None:
    no = PersonTick(ticked=False, at=200.0, by="eva")
    (ticked,) = with_ticks([result(CheckStatus.PERSON)], {"4.6": (no, YES)})
    assert (ticked.status, ticked.by, ticked.at) == (CheckStatus.PASSED, "han", 100.0)
    assert ticked.evidence == "both read well (han)"
    (back,) = with_ticks([result(CheckStatus.PERSON)], {"4.6": (YES, no)})
    assert (back.status, back.by, back.at) == (CheckStatus.PERSON, "", 200.0)
    assert back.evidence == "unticked by eva, was: both read well"
    for status in set(CheckStatus) - {CheckStatus.PERSON}:
        assert with_ticks([result(status)], {"4.6": (YES,)}) == (result(status),), (
            "no tick mends what is disproved"
        )
    assert with_ticks([result(CheckStatus.PERSON)], {"9.9": (YES,)}) == (
        result(CheckStatus.PERSON),
    )
