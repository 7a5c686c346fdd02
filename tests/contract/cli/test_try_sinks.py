"""`rgt alerts test`: each sink of the fleet file is told once, and what does not arrive is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.alerts.conftest import Receiver
from tests.contract.alerts.conftest import receiver as receiver
from tests.contract.cli.conftest import Rgt
from tests.free_ports import free_port

BOX = '[boxes.lab]\nhost = "nowhere.invalid"\n'


def test_each_sink_is_told_once_and_a_failing_one_holds_up_no_other(
    rgt: Rgt, receiver: Receiver
) -> None:
    got = rgt.folder / "got"
    rgt.env = {
        "HOOK": f"{receiver.url}/hook",
        "TOPIC": f"{receiver.url}/topic",
        "DEAD": f"http://127.0.0.1:{free_port()}/secret-topic",
        "TOKEN": "hush",
    }
    rgt.fleet.write_text(
        BOX
        + '[[sinks]]\nkind = "webhook"\nurl_env = "HOOK"\ntoken_env = "TOKEN"\nmin_level = "error"\n'
        'boxes = ["lab"]\nquiet_hours = "00:00-23:59"\n'
        '[[sinks]]\nkind = "ntfy"\nurl_env = "TOPIC"\n'
        '[[sinks]]\nkind = "ntfy"\nname = "dead"\nurl_env = "DEAD"\n'
        '[[sinks]]\nkind = "ntfy"\nname = "unset"\nurl_env = "NOT_SET"\n'
        f'[[sinks]]\nkind = "command"\nargv = ["/bin/sh", "-c", "cat >> {got}"]\n'
        '[[sinks]]\nkind = "command"\nname = "hangs"\nargv = ["sleep", "600"]\ntimeout_s = 0.5\n'
    )
    done = rgt.on("alerts", "test", "--json")
    lines = {line["sink"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert list(lines) == ["webhook", "ntfy", "dead", "unset", "command", "hangs"]
    assert {name for name, line in lines.items() if line["sent"]} == {"webhook", "ntfy", "command"}
    assert "cannot be reached" in lines["dead"]["problem"]
    assert "NOT_SET is not set" in lines["unset"]["problem"]
    assert "did not exit within 0.5 s" in lines["hangs"]["problem"]
    assert done.returncode == 1
    assert "secret-topic" not in done.stdout + done.stderr
    assert sorted(request.path for request in receiver.requests) == ["/", "/hook"]
    (hook,) = [request for request in receiver.requests if request.path == "/hook"]
    assert (hook.json["what"], hook.json["title"]) == ("test", "rgt: test")
    assert json.loads(got.read_text())["what"] == "test"


def test_only_those_that_are_named(rgt: Rgt, receiver: Receiver) -> None:
    rgt.env = {"HOOK": f"{receiver.url}/hook"}
    rgt.fleet.write_text(
        BOX
        + '[[sinks]]\nkind = "webhook"\nurl_env = "HOOK"\n[[sinks]]\nkind = "command"\nargv = ["false"]\n'
    )
    done = rgt.on("alerts", "test", "webhook")
    assert (done.returncode, done.stdout) == (0, "webhook: sent\n")
    wrong = rgt.on("alerts", "test", "webhok")
    assert (wrong.returncode, "did you mean 'webhook'?" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("words", [(), ("test", "pager")])
def test_without_a_sink_it_says_so(rgt: Rgt, words: tuple[str, ...]) -> None:
    rgt.fleet.write_text(BOX)
    done = rgt.on("alerts", *words)
    assert done.returncode == 2
    if words:
        assert f"{Path(rgt.fleet)} has no [[sinks]]" in done.stderr
