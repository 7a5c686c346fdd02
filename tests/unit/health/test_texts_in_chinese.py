"""Texts that are put together from parts are in the person's language, too, and their ids are not."""

from __future__ import annotations

import pytest

from rgt_tui import language
from rgt_tui.health import alert_ended, describe_resource, finding_key
from rgt_tui.model import Alert, Finding, Severity


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let texts be Chinese."""
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))


@pytest.mark.parametrize(
    ("resource", "shown"),
    [
        ("inodes of /workspace", "/workspace 的 inode"),
        ("quota of /home", "/home 的配额"),
        ("module 'torch'", "模块 'torch'"),
        ("the checkpoint", "检查点"),
        ("a resource of a page of one's own", "a resource of a page of one's own"),
        ("odd '{x}' of /y", "odd '{x}' of /y"),
    ],
)
@pytest.mark.usefixtures("chinese")
def test_a_resource_is_shown_in_chinese(resource: str, shown: str) -> None:
    assert describe_resource(resource) == shown


@pytest.mark.usefixtures("chinese")
def test_the_id_of_a_finding_does_not_depend_on_the_language() -> None:
    found = Finding("U7", "title", Severity.FATAL, "inodes of /data", "line", "sample")
    assert finding_key(found) == "U7:inodes of /data:"


@pytest.mark.parametrize(
    ("lasted", "told"),
    [(0.4, "lstm-a is no longer stuck"), (204.0, "lstm-a is no longer stuck, after 3m24")],
)
def test_an_end_says_how_long_it_lasted_unless_that_is_nothing(lasted: float, told: str) -> None:
    alert = Alert("stalled:lstm-a", "error", "text", since=1000.0)
    event = alert_ended("vast", alert, 1000.0 + lasted)
    assert event is not None and event.text == told
