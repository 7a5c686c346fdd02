"""What only the figures of a log show: told where no line says more, and never of a training that goes as it should."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rgt_tui.handbook import FileFinding, curve_findings, shipped_pages
from rgt_tui.handbook.file_triage import find_numeric_evidence
from rgt_tui.profiles import LAST_BYTES, HeadAndTail

PAGES = shipped_pages()
FLAT = [f"Epoch {n:02d}/20 - loss: 2.3030 - acc: 0.1289" for n in range(1, 21)]
FALLS = [f"step {n} loss {2.0 / n:.4f} lr 0.001" for n in range(1, 30)]
EXPLODES = [f"step={n} loss={4.0 * 8.0**n:.4g}" for n in range(20)]
TABLE = [
    "| epoch | train_loss | acc |",
    "|---|---|---|",
    "| 1 | 0.51 | 0.1 |",
    "| 2 | nan | 0.1 |",
    "| 3 | nan | 0.1 |",
]
BROKEN = [
    *(f"update {n} - kl: 0.1{n} - return: 4.1" for n in range(1, 5)),
    *(f"update {n} - kl: nan - return: 4.1" for n in range(5, 7)),
]
NAN_SAID = [f"05:4{n}:17 - WARNING: Loss is NaN" for n in range(6)]
SCALES = [f"| WARNING: overflow detected, setting loss scale to: {2.0**-n}" for n in range(-2, 7)]
RESUMED = "Resumed from checkpoint w.pt"


def told(lines: Sequence[str]) -> list[tuple[str, int]]:
    return [(sign.page, sign.place) for sign in find_numeric_evidence(lines)]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (FLAT, [("O2", 19)]),
        (FLAT[:9], []),
        (["step 1", *NAN_SAID, ""], [("P8", 2)]),
        (NAN_SAID[:4], []),
        ([*NAN_SAID, "epoch 3 finished"], []),
        (["Epoch 1", *SCALES], [("P10", 5)]),
        (SCALES[:4], []),
        ([f"Gradient overflow. Reducing loss scale to {2**n}.0" for n in range(16, 6, -1)], []),
        ([*SCALES, "loss scale: 2.0"], []),
        (["Setting loss scale to 1024...done", "loss_scale: 1.2.3", "loss scale: 2."], []),
        ([f"{line}...done" for line in SCALES], [("P10", 4)]),
        ([line.replace("2.3030", "0.693") for line in FLAT], [("O2", 19)]),
        ([line.replace("2.3030", "0.50") for line in FLAT], []),
        ([line.replace("2.3030", "0.0000") for line in FLAT], []),
        ([*FLAT, "Epoch 21/30 - loss: 2.3029 - acc: 0.1289"], []),
        ([line.replace("loss", "val_loss") for line in FLAT], []),
        (FALLS, []),
        (EXPLODES, [("P12", 19)]),
        ([*EXPLODES, "step=20 loss=3.9"], []),
        ([f"step {n} reg_loss {8.0**n:.1f}" for n in range(20)], []),
        ([*FALLS, RESUMED, "step 0 loss 1.9", "step 50 loss 1.2"], [("C12", len(FALLS) + 1)]),
        ([*FALLS, RESUMED, "Epoch 4 begins", "step 0 loss 0.1"], []),
        ([*FALLS, RESUMED, "step 30 loss 0.06", "step 0 of the evaluation"], []),
        ([*FALLS, f"{RESUMED} at step 29", "step 30 loss 0.06"], []),
        ([*FALLS, "loading checkpoint, the best one, to evaluate it", "epoch 0 of the probe"], []),
        ([*FALLS, "== stage 2 ==", "step 0 loss 1.9"], []),
        ([*FALLS, "Loading checkpoint shards: 100%|####| 3/3", "step 0 loss 1.9"], []),
        ([RESUMED, *FALLS], []),
        (["Epoch [4/6] loss: 0.2500", "=> loaded checkpoint 'last.pt'", "Epoch [1/6] loss: 1.0"], [("C12", 2)]),
        (TABLE, [("P8", 3)]),
        ([line.replace(" | ", ",").strip("| ") for line in TABLE], [("P8", 3)]),
        ([TABLE[0], *TABLE[3:]], []),
        ([line.replace("train_loss", "val_loss") for line in TABLE], []),
        (["loss, and what it means | a page", "nan | inf"], []),
        (BROKEN, [("P8", 4)]),
        (BROKEN[3:], []),
        ([*BROKEN, "update 7 - kl: 0.11 - return: 4.2"], []),
        ([line.replace("kl", "return_of_all") for line in BROKEN], []),
        (["torch 2.13.0+cpu, using device: cpu", *FALLS], [("U31", 0)]),
        (["Using device: cpu"], [("U31", 0)]),
        (["device=cpu"], [("U31", 0)]),
        (["Using device: cuda:0 (cpu offload off)", "map_location=cpu", "loading on cpu first"], []),
    ],
)  # fmt: skip
def test_figures_that_speak_for_themselves(lines: list[str], found: list[tuple[str, int]]) -> None:
    assert told(lines) == found


def test_figures_are_told_behind_what_only_warned_and_never_beside_what_ended_the_run() -> None:
    ((page, place),) = told(FLAT)
    (alone,) = curve_findings(FLAT, PAGES, [])
    assert (alone.gotcha, alone.line, alone.line_no, alone.confidence) == (
        page,
        FLAT[place],
        place + 1,
        0.5,
    )
    warned = FileFinding.from_page(PAGES["U40"], "32 workers", 0.95)
    assert [one.gotcha for one in curve_findings(FLAT, PAGES, [warned])] == ["U40", "O2"]
    ended = FileFinding.from_page(PAGES["U7"], "no space", 0.7)
    assert curve_findings(FLAT, PAGES, [ended]) == [ended]
    same = FileFinding.from_page(PAGES["O2"], "no parameters", 0.95)
    assert curve_findings(FLAT, PAGES, [same]) == [same]
    (far,) = curve_findings(FLAT, PAGES, [], whole=False)
    assert far.line_no == 0


def test_figures_that_are_none_explain_an_exception_that_no_page_knows() -> None:
    unknown = FileFinding.from_page(PAGES["PY1"], "ValueError: depth must be positive", 0.5)
    found = curve_findings(BROKEN, PAGES, [unknown])
    assert [one.gotcha for one in found] == ["P8", "PY1"]
    full = FileFinding.from_page(PAGES["U7"], "no space", 0.7)
    assert [one.gotcha for one in curve_findings(BROKEN, PAGES, [full, unknown])] == ["U7", "PY1"]


def test_both_ends_of_a_long_log_have_their_last_states_and_say_that_they_were_cut() -> None:
    ends = HeadAndTail()
    ends.feed(b" 10%\r 20%\rstep 1 loss 2.0\r\n\nstep 2")
    assert (ends.last_line_states, ends.cut) == (["step 1 loss 2.0", "", "step 2"], False)
    for _ in range(5):
        ends.feed(b"x" * LAST_BYTES)
    assert ends.cut
