"""``rgt check-box``: test a box before money is spent, and rate it against its price."""

from __future__ import annotations

import contextlib
import os
import sys

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import format_row, print_error, print_json, wait_indicator
from rgt_tui.cli.teardown.money_arguments import CheckBoxArguments
from rgt_tui.fleet.renting.acceptance import (
    CheckRow,
    ExpectedGpus,
    RowVerdict,
    checks_path,
    expected_of,
    judge_measurements,
    keep_check,
    load_checks,
    measure_box,
    remembered,
)
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec

STYLES = {RowVerdict.OK: "dim", RowVerdict.DOUBTFUL: "bold yellow", RowVerdict.REFUSE: "bold red"}


def run_check_box(arguments: CheckBoxArguments) -> int:
    """Test one box; return the exit status."""
    spec = open_box(arguments, trusted=True)
    if arguments.expect is None:
        expected = expected_of(spec)
    else:
        expected = ExpectedGpus(*arguments.expect)
    return running.run_on_box(spec.name, _check_box(arguments, spec, expected))


async def _check_box(arguments: CheckBoxArguments, spec: BoxSpec, expected: ExpectedGpus) -> int:
    with wait_indicator(translate("trying {name} …", name=spec.name)):
        # Without the fleet: the test needs one connection, and its load would disturb samples.
        found = await measure_box(
            spec,
            seconds=arguments.timeout,
            quick=arguments.quick,
            accept_new_host_keys=arguments.accept_new_host_key,
        )
    path = checks_path(os.environ)
    # Not against itself: a box that was always slow would be its own reference.
    earlier = tuple(one for one in load_checks(path) if one.box != spec.name)
    rows = judge_measurements(found, expected, earlier, spec.profile)
    code = exit_status(rows)
    if code == OK and not arguments.quick:
        # Refused boxes are no reference for others. A disk error only loses the reference.
        with contextlib.suppress(OSError, TimeoutError):
            keep_check(path, remembered(spec, found))
    if arguments.json:
        body = {"box": spec.name, "ok": code == OK, "exit": code, "rows": rows, "measured": found}
        print_json(body)
        return code
    for row in rows:
        advice = ""
        if row.advice:
            advice = f"; {row.advice}"
        cells = [(translate(row.verdict.value), 8, STYLES[row.verdict]), (row.id, 24, "")]
        sys.stdout.write(format_row(cells, f"{row.text}{advice}"))
    if code != OK:
        print_error(
            translate(
                "{name}: refuse it; to stop the billing: rgt down {name} --destroy", name=spec.name
            )
        )
    return code


def exit_status(rows: tuple[CheckRow, ...]) -> int:
    """Return the exit status; doubts alone are left to the person."""
    if any(row.verdict is RowVerdict.REFUSE for row in rows):
        return FAILED
    return OK
