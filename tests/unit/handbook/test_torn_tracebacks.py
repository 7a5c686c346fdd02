"""A log that ends within a traceback says what was being done; any other stack says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.handbook import shipped_pages, triage_file

PAGES = shipped_pages()
BEGIN = "Traceback (most recent call last):\n"
FRAME = '  File "/app/train.py", line 3, in main\n    helper()\n'
SPAWN = (
    '  File "{}multiprocessing{}popen_spawn_win32.py", line 33, in __init__\n'
    "    prep_data = spawn.get_preparation_data(process_obj._name)\n"
)


@pytest.mark.parametrize(
    ("end", "found"),
    [
        (SPAWN.format("E:\\conda\\lib\\", "\\"), ["U44", "PY1"]),
        (SPAWN.format("/usr/lib/", "/"), ["U44", "PY1"]),
        (
            '[rank3]:   File "/usr/lib/python3/multiprocessing/spawn.py", line 3, in main',
            ["U44", "PY1"],
        ),
        (
            "File ~/venv/lib/python3.8/site-packages/numpy/__init__.py:305, in __getattr__(attr)\n"
            '    300     warnings.warn(\n--> 305     raise AttributeError("bool")\n',
            ["NPY1", "PY1"],
        ),
        ('  File "/exp/train.py", line 3, in main\n    step()\n', ["PY1"]),
        (f"{SPAWN.format('/usr/lib/', '/')}saved\n", []),
        (f"{SPAWN.format('/usr/lib/', '/')}epoch 3: loss 0.5\n", []),
        ("done\n", []),
    ],
)
def test_a_log_that_ends_within_a_traceback_shows_what_was_being_done(
    end: str, found: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"starting\n\n{BEGIN}{end}")
    assert [one.gotcha for one in triage_file(path, PAGES)] == found


def test_of_a_torn_traceback_an_outer_frame_tells_what_an_inner_one_does_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.log"
    inner = '  File "/exp/own.py", line 3, in go\n    x()\n'
    path.write_text(f"{BEGIN}{SPAWN.format('/usr/lib/', '/')}{inner}")
    first, second = triage_file(path, PAGES)
    assert (first.gotcha, first.line_no, second.gotcha, second.line_no) == ("U44", 2, "PY1", 4)


@pytest.mark.parametrize(
    "before",
    [
        "Called from:\n",
        "slow op, stack:\n",
        "watchdog stack dump\n",
        f"{BEGIN}{FRAME}ValueError: handled\nslow op, stack:\n",
        f"{BEGIN}{FRAME}" + "step 2 loss 0.4\n" * 30,
    ],
)
def test_a_stack_that_a_program_prints_of_itself_is_no_end(before: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"step 1 loss 0.5\nstep 2 loss 0.4\n{before}{FRAME}")
    torn = [one for one in triage_file(path, PAGES) if one.line_no > 2 + before.count("\n")]
    assert torn == []


@pytest.mark.parametrize(
    "text",
    [
        FRAME * 2,
        f"    helper()\n{FRAME}",
        "File /lib/a.py:48\n     47 x = {\n---> 48     b,\n     49 }\n\nFile /lib/b.py:3, in f(x)\n----> 3     g()\n",
        f"{BEGIN}{FRAME * 40}",
        f"{BEGIN}step 3 loss 0.3\n{FRAME}",
    ],
)
def test_a_traceback_whose_beginning_is_cut_off_or_far_above_counts(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    assert [one.gotcha for one in triage_file(path, PAGES)] == ["PY1"]
