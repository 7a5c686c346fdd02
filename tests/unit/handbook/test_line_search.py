"""What a log shows: the right page first, nothing on healthy ones, the same in any pieces, and in linear time."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rgt_tui.handbook import (
    HandbookPage,
    LineHit,
    LiteralSearch,
    LogSearcher,
    line_search,
    search_text,
    shipped_pages,
    triage_file,
    went_on,
    writer_of,
)
from rgt_tui.handbook.file_triage import rank_findings
from rgt_tui.handbook.foreign_messages import translate_line
from tests.conftest import THOROUGH

PAGES = shipped_pages()
CASES = [
    json.loads(line)
    for name in ("cases", "lines", "real", "catalog")
    for line in (Path(__file__).parents[2] / "fixtures" / "triage" / f"{name}.jsonl")
    .read_text()
    .splitlines()
]


@pytest.mark.parametrize("first", range(0, len(CASES), 100))
def test_a_failure_is_named_and_a_healthy_log_is_not(first: int) -> None:
    """A hundred cases in one test: a test for each would take longer than its search."""
    wrong = {}
    for case in CASES[first : first + 100]:
        found = [
            finding.gotcha
            for finding in rank_findings(search_text(case["log"], PAGES.values()), PAGES)
        ]
        # An unknown exception comes after what it is probably about.
        best = found[: 2 if case["case"].startswith("real") or case["expected"] == "PY1" else 1]
        if found if case["expected"] == "healthy" else case["expected"] not in best:
            wrong[f"{case['case']}-{case['expected']}"] = found
    assert wrong == {}


WARNED = "UserWarning: 'pin_memory' argument is set as true but no accelerator is found, then device pinned memory\n"
ENDED = (
    'Traceback (most recent call last):\n  File "/exp/train.py", line 3, in <module>\n    fold()\n'
)


@pytest.mark.parametrize(
    ("log", "order"),
    [
        (f"{WARNED}{ENDED}LookupError: no fold 3\n", ["PY1", "U31"]),
        (
            f"{WARNED}{ENDED}RuntimeError: stack expects each tensor to be equal size, but got [\n",
            ["DP4", "U31"],
        ),
        (f"{ENDED}ValueError: optimizer got an empty parameter list\n", ["O2", "O27"]),
    ],
)
def test_what_ended_the_run_stands_before_what_only_warned(log: str, order: list[str]) -> None:
    found = rank_findings(search_text("go\n" * 9 + log, PAGES.values()), PAGES)
    assert [finding.gotcha for finding in found] == order


@pytest.mark.parametrize(
    ("said", "likely"),
    [
        ("ValueError: the encoder takes 2D or 3D input, and got 4D", "SHP1"),
        ("ValueError: axes don't match array: 3 dimensions", "SHP1"),
        ("RuntimeError: scatter(): index must have dtype int64", "DTYPE1"),
        ("RuntimeError: scorer: model and batch are on different devices", "DEV1"),
        ("ValueError: this scorer requires a GPU", "U31"),
        ("ValueError: multilabel-indicator format is unknown", "O14"),
        ("FileNotFoundError: shard 3 of the corpus", "PATH1"),
        ("RuntimeError: the data directory is missing", "PATH1"),
        ("RuntimeError: the loader is empty", "EMPTY1"),
        ("ValueError: depth must be positive", "CFG1"),
        ("x.exceptions.MisconfigurationException: two loggers", "CFG1"),
        ("TypeError: Trainer.step() takes 3 positional arguments but 4 were given", "IMP1"),
        ("AttributeError: 'AdamW' object has no attribute 'train'", "IMP1"),
        ("RuntimeError: soundfile is not installed", "ENV1"),
        ("KeyError: 'labels'", "COL1"),
        ("RuntimeError: the weights are incompatible", "CKPT2"),
        ("ValueError: cannot turn the string '7,5' into a number", "NUM1"),
        ("RuntimeError: NCCL was not initialised", "NCCL1"),
        ("RuntimeError: call init_process_group first", "D1"),
        ("ValueError: the metric f1 is not logged", "MON1"),
        ("RuntimeError: nothing here requires grad", "O3"),
        ("TypeError: Tokenizer.encode wants a str", "TOK1"),
        ("ValueError: no chat template", "L8"),
        ("ZeroDivisionError: division by zero", None),
        ("AttributeError: 'NoneType' object has no attribute 'group'", None),
        ("KeyError: 17", None),
    ],
)  # fmt: skip
def test_of_an_exception_that_none_knows_it_is_told_what_it_is_probably_about(
    said: str, likely: str | None
) -> None:
    expected = [*([likely] if likely else []), "PY1"]
    if said.startswith("KeyError"):
        expected.reverse()  # a key alone says little
    for before in ("", "[rank3]: "):
        log = "".join(f"{before}{line}\n" for line in (*ENDED.splitlines(), said))
        found = rank_findings(search_text(log, PAGES.values()), PAGES)
        assert [finding.gotcha for finding in found] == expected
        assert {finding.confidence for finding in found} == {0.5}
        assert {finding.line for finding in found} == {before + said}


@pytest.mark.parametrize(
    ("frame", "likely"),
    [
        ("torch/utils/data/_utils/collate.py", "DP4"),
        ("omegaconf/base.py", "CFG1"),
        ("PIL/Image.py", "IMG1"),
        ("torch/optim/lr_scheduler.py", "O8"),
        ("keras/src/optimizers/sgd.py", "O27"),
        ("jax/_src/pjit.py", "API1"),
    ],
)
def test_the_innermost_frame_of_an_unknown_exception_tells_what_a_library_was_doing(
    frame: str, likely: str | None
) -> None:
    own = ENDED.replace("fold()", "step()")
    inner = f'  File "/venv/lib/python3.11/site-packages/{frame}", line 7, in go\n    x.y()\n    ^^^^^\n'
    for log in (f"{own}{inner}TypeError: object has no len()\n", f"{own}{inner}TypeError\n"):
        found = rank_findings(search_text(log, PAGES.values()), PAGES)
        expected = ["PY1", likely] if likely == "API1" else [likely, "PY1"]
        assert [finding.gotcha for finding in found] == expected
    outer = f"{ENDED.splitlines()[0]}\n{inner}{own.split(chr(10), 1)[1]}TypeError: object has no len()\n"
    assert [
        finding.gotcha for finding in rank_findings(search_text(outer, PAGES.values()), PAGES)
    ] == ["PY1"]


@pytest.mark.parametrize(
    ("line", "page"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=77, Ch 00000010", "ILL1"),
        (
            "NVRM: Xid (PCI:0000:3b:00): 45, pid=77, Ch 10, errorString caused by previous Xid 74",
            "U22",
        ),
        ("Overflow: reducing loss scale from 1e-30 to 5e-31", "P10"),
        ("the loss_scale goes from 0.1 to 0.0", "P10"),
        ("Overflow: reducing loss scale from 65536 to 32768", None),
        (
            '{"status": "FAILED", "statusReason": "[rank1] RuntimeError: CUDA out of memory."}',
            "U10",
        ),
    ],
)
def test_what_an_earlier_failure_caused_and_how_low_a_figure_is_decides(
    line: str, page: str | None
) -> None:
    assert [hit.id for hit in search_text(f"{line}\n", PAGES.values())][:1] == (
        [page] if page else []
    )


def test_a_hint_about_an_unknown_exception_stands_before_what_its_script_says() -> None:
    log = f"{ENDED}ValueError: depth must be positive\nerror: the recipe of the training gave up\n"
    found = rank_findings(search_text(log, PAGES.values()), PAGES)
    assert [one.gotcha for one in found] == ["CFG1", "PY1", "SH1"]


def test_no_hint_takes_long_for_a_long_line() -> None:
    said = (
        "ValueError: "
        + "no path dims str GPU requires label config column tokenizer metric weights " * 30
    )
    began = time.thread_time()
    rank_findings(search_text(f"{ENDED}{said}\n", PAGES.values()), PAGES)
    assert (
        time.thread_time() - began < 10
    )  # linear would be milliseconds; what is not takes minutes


@pytest.mark.parametrize(
    "line",
    [
        "MeanAbsoluteError: 0.12",
        "# RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB  (what you see when it is full)",
        "// OSError: [Errno 28] No space left on device",
        "epoch 3 loss 0.31 info nan_count=0",
        "Connection to node4 established, rank 255",
        "checkpoint saved at step 137",
    ],
)
def test_words_that_only_sound_like_a_failure_are_none(line: str) -> None:
    assert search_text(f"{line}\n", PAGES.values()) == []


def test_the_line_is_named_with_its_number_also_behind_colours_and_progress_bars() -> None:
    log = (
        b"start\r\n 10%|#  |\r 20%|## |\r 30%|###|\n"
        b"\x1b[31mOSError\x1b[0m: [Errno 28] No space \x1b[1mleft on device\x1b[0m\n"
        b"a\rb\rModuleNotFoundError: No module named 'einops'\n"
    )
    found = {(hit.id, hit.line_no, hit.name) for hit in search_text(log, PAGES.values())}
    assert found == {("U7", 3, None), ("ENV1", 4, "einops")}


@pytest.mark.parametrize(
    "before",
    ["[rank{}]: ", "[default{0}]:[rank{0}]: ", "[1,{}]<stderr>:", "(Train pid={}) ", "{}: "],
)
def test_lines_of_several_writers_are_put_together_and_told_with_theirs(before: str) -> None:
    own = [
        "Traceback (most recent call last):",
        '  File "/exp/train.py", line 3, in <module>',
        "    main()",
    ]
    ends = ["ValueError: shard 7 has 3 columns", "KeyError: 'tokens'"]
    mixed = [before.format(rank) + line for line in own for rank in (3, 4)]
    mixed += [before.format(rank) + end for rank, end in zip((3, 4), ends, strict=True)]
    hits = [
        hit for hit in search_text("\n".join(["go", *mixed]), PAGES.values()) if hit.id == "PY1"
    ]
    assert {(hit.line, hit.line_no, hit.name) for hit in hits} == {
        (before.format(3) + ends[0], 8, "ValueError"), (before.format(4) + ends[1], 9, "KeyError")
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "step 3: loss 2.0", "12:30:01 go", "[0.1, 0.2]", "[rank one]: x", "a | b", "    x = 1", "", "[1] 4711",
        "# 3 a note", "#3 of 4 shards", "2026-05-03 11:02:17 ERROR 404: Not Found.", "Epoch-3 | loss 2.0", "May be 3",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_writer_is_none(line: str) -> None:
    assert writer_of(line) == ("", line)


WGET = "Connecting to a.example|203.0.113.4|:443... failed: Connection timed out."


@pytest.mark.parametrize(
    ("then", "found"),
    [
        ("2026-05-03 11:04:17 (1.92 MB/s) - ‘a.zip’ saved [77/77]", []),
        ("2026-05-03 11:04:17 nothing saved", ["NET1"]),
    ],
)
def test_an_address_that_failed_is_none_where_the_file_came_from_the_next(
    then: str, found: list[str]
) -> None:
    log = f"{WGET}\n{then}\n"
    told = rank_findings(search_text(log, PAGES.values()), PAGES, went_on(log, 3))
    assert [finding.gotcha for finding in told] == found


def test_an_image_that_was_skipped_is_none_where_the_training_went_on() -> None:
    log = (
        "WARNING loader: PIL.UnidentifiedImageError: cannot identify image file 'a.jpg', skipped\n"
    )
    assert [
        finding.gotcha for finding in rank_findings(search_text(log, PAGES.values()), PAGES)
    ] == ["IMG1"]
    log += "step 11 loss 0.49\n"
    assert rank_findings(search_text(log, PAGES.values()), PAGES, went_on(log, 3)) == []


STAMPS = [
    "2026-05-03T11:02:17.{:06}Z stderr F ", "2026-05-03T11:02:{:02}+02:00 ", "#12 {}.203 ", "May  3 11:02:{:02} box7 ",
    "May 03 11:02:{:02} box7 train.sh[812]: ", "May 03 11:02:{:02} box7 python3.11[812]: ", "trainer-1  | ",
]  # fmt: skip


@pytest.mark.parametrize("stamp", STAMPS)
def test_what_a_keeper_of_logs_puts_before_each_line_is_no_part_of_it(stamp: str) -> None:
    lines = [*ENDED.splitlines(), "LookupError: no fold 3", "E: Unable to locate package tmux"]
    log = "\n".join(["go", *(stamp.format(number) + line for number, line in enumerate(lines))])
    hits = {(hit.id, hit.line, hit.line_no) for hit in search_text(log, PAGES.values())}
    assert {
        ("PY1", stamp.format(3) + lines[3], 5),
        ("APT1", stamp.format(4).lstrip() + lines[4], 6),
    } <= hits


@pytest.mark.parametrize(
    "before",
    [
        "2026-05-03 11:02:{:02},731 - ERROR - ", "[2026-05-03 11:02:{:02}] ", "11:02:{:02} | ", "ERROR:root:",
        "(EngineCore_DP0 pid=2211) ERROR 05-03 11:02:{:02} [core.py:700] ", "node-49: ", "10.0.0.7: ", "[ERROR] ",
        "[2026-05-03, 11:02:{:02} UTC] {{subprocess.py:93}} INFO - ", "2026-05-03T11:02:{:02}.5Z | algo-1:",
        "E0503 11:02:{:02}.123456 4411 train.py:33] ", "stderr 2026/05/03 11:02:{:02} ", "May  3 11:02:{:02} ",
    ],
)  # fmt: skip
def test_what_stands_before_the_first_line_of_a_traceback_is_no_part_of_its_others(
    before: str,
) -> None:
    lines = [
        *ENDED.splitlines(),
        "FileNotFoundError: [Errno 2] No such file or directory: 'a.json'",
    ]
    log = "\n".join(
        before.format(number) + line for number, line in enumerate(["go", *lines, "bye"])
    )
    assert [
        (hit.id, hit.line, hit.line_no)
        for hit in search_text(log, PAGES.values())
        if hit.id != "PY1"
    ] == [("PATH1", before.format(4) + lines[3], 5)]


def test_a_traceback_within_a_value_of_json_is_read_as_its_lines() -> None:
    raised = (
        f"{ENDED}"
        + '  File "/venv/lib/deep.py", line 3, in go\n    x()\n' * 60
        + "mylib.Boom: no fold 3"
    )
    log = "\n".join(
        json.dumps({"level": "ERROR", "exc_info": said, "step": 7}) for said in ("none", raised)
    )
    hits = search_text(f"{log}\n", PAGES.values())
    assert [(hit.id, hit.line, hit.line_no) for hit in hits] == [
        ("PY1", "mylib.Boom: no fold 3", 2)
    ]
    survived = json.dumps({"text": "it says Traceback (most recent call last): and goes on"})
    assert search_text(f"{survived}\n", PAGES.values()) == []


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("ValueError: depth must be positive", ["CFG1", "PY1"]),
        ("[rank0]: ValueError: depth must be positive\r\n\n", ["CFG1", "PY1"]),
        ("2026-05-03 11:02:17 ERROR main: mylib.errors.FoldError: no fold 3\nbye", ["PY1"]),
        ("ValueError: depth must be positive\nstep 3 loss 0.2", []),
        ("ValueError: depth must be positive" + "\nbye" * 12, []),
        ("WARNING ValueError: depth must be positive, skipping it", []),
        ("MeanAbsoluteError: 0.12", []),
        ("Summary: HTTPError: 0, TimeoutError: 0", []),
        ("prompt: what does ValueError: bad depth mean?", []),
        ("it said 'ValueError: depth must be positive'", []),
    ],
)
def test_an_exception_without_a_traceback_counts_if_the_log_ends_with_it(
    log: str, found: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(f"go\n{log}".encode())
    told = triage_file(path, PAGES)
    assert [one.gotcha for one in told] == found
    assert {(one.line, one.line_no) for one in told} <= {(log.split("\n")[0].strip(), 2)}


def test_what_the_journal_says_of_other_programs_is_not_taken_for_a_script_s() -> None:
    before = "May 03 11:02:17 box7 "
    assert writer_of(f"{before}sshd[7]: Connection closed") == (
        before,
        "sshd[7]: Connection closed",
    )


def test_of_two_ends_the_last_is_told_and_of_a_chain_the_first() -> None:
    survived = 'Traceback (most recent call last):\n  File "/exp/a.py", line 1, in get\n    x()\nKeyError: 1\n'
    joined = "\nThe above exception was the direct cause of the following exception:\n\n"
    cause = 'Traceback (most recent call last):\n  File "/exp/b.py", line 2, in load\n    y()\nLookupError: 2\n'
    outer = 'Traceback (most recent call last):\n  File "/exp/c.py", line 3, in main\n    z()\nValueError: 3\n'
    log = survived + "step 1 loss 2.0\n" * 300 + cause + joined + outer
    (found,) = rank_findings(search_text(log, PAGES.values()), PAGES)
    assert (found.gotcha, found.line, found.line_no, found.times) == (
        "PY1",
        "LookupError: 2",
        308,
        3,
    )


def test_pieces_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, thorough: bool) -> None:
    monkeypatch.setattr(line_search, "BLOCK", 3000)
    rng = random.Random(7)
    parts = []
    for case in rng.sample(CASES, 250 if thorough else 60):
        parts += [
            case["log"].rstrip("\n"),
            *(f"step {rng.random()} loss {rng.random():.3f}" for _ in range(60)),
        ]
    data = "\n".join(parts).encode()
    whole = LogSearcher(PAGES.values())
    expected = [*whole.feed(data), *whole.close()]
    for _ in range(2):
        found: list[LineHit] = []
        searcher, at = LogSearcher(PAGES.values()), 0
        while at < len(data):
            size = rng.choice((1, 7, 100, 5000, 40_000))
            found += searcher.feed(data[at : at + size])
            at += size
        found += searcher.close()
        assert {(hit.id, hit.line_no) for hit in found} == {
            (hit.id, hit.line_no) for hit in expected
        }
    lines = data.split(b"\n")
    for hit in expected:
        assert hit.line.split("\ufffd")[0][:40].encode() in line_search.ANSI.sub(
            b"", lines[hit.line_no - 1]
        )


def interleaved(rng: random.Random) -> bytes:
    """Return a log into which several ranks wrote by turns, each of them failures between its steps."""
    own = [
        [
            f"[rank{rank}]: {line}"
            for case in rng.sample(CASES, 4)
            for line in (*(f"step {step} loss 0.{step}" for step in range(rng.randrange(30))),
                         *case["log"].rstrip("\n").split("\n")[:80])
        ]
        for rank in range(3)
    ]  # fmt: skip
    mixed = []
    while waiting := [lines for lines in own if lines]:
        lines = rng.choice(waiting)
        count = rng.randrange(1, 4)
        mixed += lines[:count]
        del lines[:count]
    return "\n".join(mixed).encode()


@settings(
    max_examples=25 if THOROUGH else 8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1 << 32), block=st.integers(200, 6000))
def test_where_a_log_of_several_ranks_is_cut_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch, seed: int, block: int
) -> None:
    rng = random.Random(seed)
    data = interleaved(rng)
    monkeypatch.setattr(line_search, "BLOCK", len(data) + 1)
    expected = search_text(data, PAGES.values())
    monkeypatch.setattr(line_search, "BLOCK", block)
    found: list[LineHit] = []
    searcher, at = LogSearcher(PAGES.values()), 0
    while at < len(data):
        size = rng.choice((1, 7, 100, 5000))
        found += searcher.feed(data[at : at + size])
        at += size
    found += searcher.close()
    assert sorted(found, key=lambda hit: hit.line_no) == expected


def test_of_a_line_without_an_end_only_the_beginning_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_search, "BLOCK", 1000)
    searcher = LogSearcher(PAGES.values())
    found = [hit for _ in range(50) for hit in searcher.feed(b"x" * 999)]
    assert len(searcher._kept) + len(searcher._new) < 10_000
    found += searcher.feed(b"Killed\nOSError: [Errno 28] No space left on device\n")
    found += searcher.close()
    assert [(hit.id, hit.line_no) for hit in found] == [("U7", 2)]


def test_the_first_look_is_made_once_for_the_same_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window of a log is searched anew with each line that comes."""
    made: list[LiteralSearch] = []

    def make(pages: tuple[HandbookPage, ...]) -> LiteralSearch:
        made.append(LiteralSearch(pages))
        return made[-1]

    monkeypatch.setattr(line_search, "LiteralSearch", make)
    page = msgspec.structs.replace(PAGES["U7"], needles=("gone",), patterns=("^gone$",))
    for _ in range(3):
        assert [hit.line_no for hit in search_text("a\ngone\n", [page])] == [2]
    assert len(made) == 1
    other = msgspec.structs.replace(page, needles=("left",), patterns=("^left$",))
    assert search_text("a\ngone\n", [other]) == []


def test_the_pages_of_a_line_are_those_of_which_something_stands_in_it() -> None:
    lookout = LiteralSearch(PAGES.values())
    odd = [b"", b"\0\xff\xfeKILLED\xc3", "显存 CUDA out of memory 错误".encode()]
    for text in (
        odd + sorted({case["log"].strip().split("\n")[-1].encode() for case in CASES})[::10]
    ):
        text = translate_line(text.decode("utf-8", "replace")).encode()
        low = text.lower()
        assert [page.id for page in lookout.find_suspect_pages(text)] == [
            page.id
            for page in PAGES.values()
            if any(needle.encode() in low for needle in (*page.needles, *page.first_words))
            or (page.needle_pattern and re.search(page.needle_pattern.encode(), text, re.I | re.M))
        ]


def test_a_line_is_suspected_by_its_literals_alone() -> None:
    lookout = LiteralSearch(PAGES.values())
    assert lookout.suspect_rows(["step 143 loss 0.137", ""]) == {}
    suspected = lookout.suspect_rows(
        ["step 3", "write: NO SPACE LEFT ON DEVICE", "", "exit code: 137"]
    )
    assert set(suspected) == {1, 3}
    assert "U7" in suspected[1]
    assert "U9" in suspected[3]


def test_a_cheap_pattern_sees_where_a_line_begins() -> None:
    page = msgspec.structs.replace(
        PAGES["U7"], needles=(), needle_pattern="^gone$", patterns=("^gone$",)
    )
    lookout = LiteralSearch([page])
    assert lookout.suspect_rows(["a", "gone", "it is gone", "gone"]) == {1: ("U7",), 3: ("U7",)}
    assert [hit.line_no for hit in search_text("a\ngone\nall gone\n", [page])] == [2]


def test_a_very_long_line_is_searched_around_its_literal() -> None:
    line = b"x" * 3_000_000 + b" OSError: [Errno 28] No space left on device " + b"y" * 3_000_000
    assert [hit.id for hit in search_text(line, PAGES.values())] == ["U7"]


@given(st.binary(max_size=4000))
@example(b"\x1b[" * 500 + b"Killed\n\xff\xfe\x00\r\r\n")
@example(b"OSError: [Errno 28] No space left on device\x00")
def test_no_bytes_are_too_odd(data: bytes) -> None:
    search_text(data, PAGES.values())


@pytest.mark.parametrize(
    "page", [page for page in PAGES.values() if page.patterns], ids=lambda page: page.id
)
def test_the_work_grows_with_the_text_and_not_faster(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line is handed to the patterns a bounded number of times, whatever the text is."""
    handed = 0
    real = line_search.hits_of

    def counted(one: Any, rows: Any, text: str) -> Any:
        nonlocal handed
        handed += len(text)
        return real(one, rows, text)

    monkeypatch.setattr(line_search, "hits_of", counted)
    needle = next(iter(page.needles), "loss nan 137")
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=6)) for _ in range(400)]
    text = "\n".join(f"{needle} {rng.choice(words)} {rng.choice(words)}" for _ in range(400))
    search_text(text, [page])
    assert handed <= 3 * len(text) + 20_000


@pytest.mark.parametrize(
    ("line", "has", "has_not"),
    [
        (
            "CUDA out of memory. Tried to allocate 2 GiB. See documentation for PYTORCH_CUDA_ALLOC_CONF",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "export PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        (
            "CUDA out of memory. Tried to allocate 2 GiB. try setting PYTORCH_ALLOC_CONF=expandable_segments:True",
            "export PYTORCH_ALLOC_CONF=expandable_segments:True",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
        (
            "Memory access fault by GPU node-1 (Agent handle: 0x1f) on address 0x7a. Reason: Page not present",
            "export AMD_SERIALIZE_KERNEL=3 AMD_SERIALIZE_COPY=3",
            "export CUDA_LAUNCH_BLOCKING=1",
        ),
        (
            "RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB",
            "rocm-smi --showmeminfo vram --showpids",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
        ("AssertionError: Torch not compiled with CUDA enabled", "--force-reinstall torch", "docker run --gpus all"),
        ("CUDA error: no kernel image is available for execution on the device", "get_arch_list", "grep -ivE"),
        (
            "xgboost.core.XGBoostError: common.h:153: XGBoost version not compiled with GPU support.",
            "xgboost.build_info()",
            "torch",
        ),
    ],
)  # fmt: skip
def test_a_first_fix_is_one_that_works_where_the_line_was_written(
    line: str, has: str, has_not: str
) -> None:
    (first, *_) = rank_findings(search_text(line, PAGES.values()), PAGES)
    commands = "\n".join(fix.command or "" for fix in first.fix)
    assert has in commands and has_not not in commands, first.gotcha


@pytest.mark.parametrize(
    ("line", "first_step"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "the JVM's own heap"),
        ("FATAL ERROR: Reached heap limit - JavaScript heap out of memory", "Node's own heap"),
        ("MemoryError: ", "Read the size in the message"),
    ],
)
def test_the_limit_of_a_runtime_is_not_taken_for_the_machines(line: str, first_step: str) -> None:
    (first, *_) = rank_findings(search_text(line, PAGES.values()), PAGES)
    assert first.gotcha == "HMEM1"
    assert first_step in first.fix[0].text


def test_the_frames_of_windows_are_read_as_pages_write_them() -> None:
    log = (
        '  File "C:\\venv\\lib\\site-packages\\accelerate\\commands\\launch.py", line 637, in simple_launcher\n'
        "    raise subprocess.CalledProcessError(returncode=1, cmd=cmd)\n"
        "subprocess.CalledProcessError: Command '['python.exe', 'E:/Daten\\m']' returned non-zero exit status 1.\n"
    )
    assert [one.gotcha for one in rank_findings(search_text(log, PAGES.values()), PAGES)] == ["D27"]


def test_collectives_of_one_kind_that_time_out_are_no_mismatch() -> None:
    log = "".join(
        f"[rank{n}]:[E ProcessGroupNCCL.cpp:754] [Rank {n}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum=288, OpType={kind}, Timeout(ms)=600000) ran for 600381 milliseconds\n"
        for n, kind in enumerate(["ALLREDUCE", "ALLREDUCE", "{}"])
    )
    for kind, found in (("ALLREDUCE", False), ("ALLGATHER", True), ("ALLREDUCE_COALESCED", True)):
        hits = search_text(log.replace("{}", kind), PAGES.values())
        assert ("D21" in {hit.id for hit in hits}) is found, kind
