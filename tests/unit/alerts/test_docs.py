"""The pages have the table of conditions as it is: alerts, handbook, checks; ``RGT_UPDATE_DOCS=1`` writes them."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.health import ALERTS, CHECKS, HANDBOOK, SINKS, Condition
from rgt_tui.model import SinkSettings, format_duration

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "alerts.md"
HEAD = "| kind | what | raised → cleared | lasts | over for | what to do | more |\n|---|---|---|---|---|---|---|\n"


def limits(kind: Condition) -> str:
    if kind.rises:
        return f"{kind.rungs[0].level}: {kind.unit}"
    if kind.unit == "yes":
        return kind.rungs[0].level if kind.id != "finding" else "as the finding"
    sign, back = ("≤", ">") if kind.below else ("≥", "<")
    parts = [f"{rung.level} {sign} {rung.at:g} → {back} {rung.clear:g}" for rung in kind.rungs]
    gap = "" if kind.unit.startswith("%") else " "
    return f"{'; '.join(parts)}{gap}{kind.unit}"


def row(kind: Condition) -> str:
    calls = " **!**" if kind.escalates else ""
    lasts, over = (
        format_duration(seconds) if seconds else "–" for seconds in (kind.hold_s, kind.quiet_s)
    )
    see = kind.related_ids.replace("triage", "[triage](triage.md)").replace(
        "platform", "[profiles](profiles.md)"
    )
    return f"| `{kind.id}`{calls} | {kind.title} | {limits(kind)} | {lasts} | {over} | {kind.advice} | {see} |\n"


def between(text: str, name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found is not None
    return found.group(1)


def kinds() -> str:
    return HEAD + "".join(row(kind) for kind in ALERTS)


def handbook() -> str:
    rows = [
        f"| `{entry.id}` | {entry.title} | {entry.severity.value} | "
        f"{', '.join(f'`{beaten}`' for beaten in entry.beats) or '–'} |\n"
        for entry in HANDBOOK.values()
    ]
    return "| id | what | severity | explains away |\n|---|---|---|---|\n" + "".join(rows)


def checks() -> str:
    rows = [
        f"| {check.id} | {check.title} | {inspect.getdoc(check.evaluator)} | "
        f"{'`' + check.command.format(box='BOX').replace('|', chr(92) + '|') + '`' if check.command else ''} |\n"
        for check in CHECKS
    ]
    return "| check | | | to run |\n|---|---|---|---|\n" + "".join(rows)


@pytest.mark.parametrize(
    ("page", "table"),
    [("alerts.md", kinds), ("triage.md", handbook), ("lifecycle.md", checks)],
    ids=["alerts", "triage", "lifecycle"],
)
def test_the_pages_have_the_table(page: str, table: Callable[[], str]) -> None:
    path, name = DOCS / page, table.__name__
    text = path.read_text(encoding="utf-8")
    if os.environ.get("RGT_UPDATE_DOCS"):
        old = f"<!-- {name} -->\n{between(text, name)}<!-- /{name} -->"
        text = text.replace(old, f"<!-- {name} -->\n{table()}<!-- /{name} -->")
        path.write_text(text, encoding="utf-8")
    assert between(text, name) == table()


def test_every_sink_and_every_key_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [
        name for name in (*SINKS, *SinkSettings.__struct_fields__) if f"`{name}`" not in text
    ] == []


def test_what_a_row_refers_to_is_there() -> None:
    """Ids are those of the handbook, of the lifecycle, or of the notes that the handbook's ids come from."""
    words = {word for kind in ALERTS for word in kind.related_ids.split()}
    checks = {check.id for check in CHECKS}
    notes = re.compile(r"(?:U|P|C|PA|SP|G|T|MP|SSH-[TKWP])\d+")
    other = words - checks - set(HANDBOOK) - {"triage", "platform"}
    assert [word for word in other if not notes.fullmatch(word)] == []
    assert [word for word in words if "." in word and word not in checks] == []
