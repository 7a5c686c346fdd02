"""Which event loop is used."""

from __future__ import annotations

import asyncio

import pytest

from rgt_tui.fleet import event_loop


def kind(boxes: int) -> str:
    loop = event_loop.new_loop(boxes)
    try:
        assert loop.run_until_complete(asyncio.sleep(0, "works")) == "works"
        return type(loop).__module__.partition(".")[0]
    finally:
        loop.close()


def test_many_boxes_get_the_faster_loop_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("uvloop")
    assert (kind(30), kind(31)) == ("asyncio", "uvloop")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert kind(31) == "asyncio"
