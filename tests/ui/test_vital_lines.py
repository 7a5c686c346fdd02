from __future__ import annotations

import msgspec

from rgt_tui.model.fleet import Spend
from rgt_tui.model.protocol import Gpu, GpuHolder, Hello
from rgt_tui.ui.box_status import spend_parts
from rgt_tui.ui.widgets.gpu_cards import fault_lines
from rgt_tui.ui.widgets.spans import pick, text_of
from rgt_tui.ui.widgets.vitals import limited_lines, link_lines
from tests.ui.fakes import NOW, demo_state, running_box


def test_faults_of_a_gpu_are_said_and_a_healthy_one_says_nothing() -> None:
    bad = Gpu(
        index=0,
        name="X",
        xid=79,
        ecc_uncorrected=2,
        ecc_corrected=5,
        orphans=(GpuHolder(pid=7, started=0.0, cmd="python"),),
    )
    text = "\n".join(text_of(made) for made in fault_lines(bad))
    assert "Xid 79" in text
    assert "2 uncorrected memory errors" in text
    assert "5 corrected memory errors" in text
    assert "7 python" in text
    assert fault_lines(Gpu(index=0, name="X", ecc_corrected=0, ecc_uncorrected=0)) == []


def test_limits_of_the_box_and_of_the_agent_are_said_once() -> None:
    hello = Hello(
        proto=1, agent="abc", boot="boot", host="host", python="3.11", pid=1, at=NOW, limited=("no log",)
    )
    box = msgspec.structs.replace(running_box("a"), limited=("no Python", "no log"), hello=hello)
    assert [text_of(made)[2:] for made in limited_lines(box, 80)] == ["limited: no Python", "limited: no log"]


def test_another_pace_and_remembered_values_are_said() -> None:
    box = msgspec.structs.replace(running_box("a"), interval=15.0, remembered_at=NOW, sample=None)
    text = "\n".join(text_of(made) for made in link_lines(box, 80, NOW))
    assert "sampled every 15 s" in text
    assert "by an earlier rgt" in text


def test_today_replaces_spent_where_somebody_keeps_count() -> None:
    state = demo_state()
    assert "spent" in text_of(spend_parts(state)[0][1])
    kept = msgspec.structs.replace(
        state, spend=Spend(today=(("USD", 2.98), ("CNY", 5.12)), idle_today=(("USD", 0.31),))
    )
    assert [text_of(made) for _, made in spend_parts(kept)] == ["today $2.98 + ¥5.12", "idle $0.31"]


def test_yesterday_and_the_month_stand_behind_today_where_there_is_room() -> None:
    spend = Spend(
        today=(("USD", 2.98),),
        idle_today=(("USD", 0.31),),
        yesterday=(("USD", 12.4),),
        month=(("USD", 61.2),),
    )
    parts = spend_parts(msgspec.structs.replace(demo_state(), spend=spend))
    assert text_of(pick(100, parts)) == "today $2.98  idle $0.31  yesterday $12.40  month $61.20"
    assert text_of(pick(44, parts)) == "today $2.98  idle $0.31  yesterday $12.40"
    assert text_of(pick(25, parts)) == "today $2.98  idle $0.31"
    first = Spend(today=(("USD", 2.98),), yesterday=(("USD", 0.0),), month=(("USD", 2.98),))
    parts = spend_parts(msgspec.structs.replace(demo_state(), spend=first))
    assert [text_of(made) for _, made in parts] == ["today $2.98"]  # on the first of a month, and a first day


def test_sums_that_lack_lost_hours_are_lower_bounds() -> None:
    spend = Spend(
        today=(("USD", 2.98),),
        yesterday=(("USD", 12.4),),
        month=(("USD", 61.2),),
        at_least=("yesterday", "month"),
    )
    parts = spend_parts(msgspec.structs.replace(demo_state(), spend=spend))
    assert [text_of(made) for _, made in parts] == [
        "today $2.98",
        "yesterday ≥ $12.40",
        "month ≥ $61.20",
    ]
