"""ntfy, webhook and Apprise against a real server; and no secret in what goes wrong."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.health import (
    AlertSink,
    AppriseSink,
    SinkError,
    build_sink,
    read_sink_address,
    split_topic_url,
)
from rgt_tui.model import AlertEvent, Secret, SinkSettings
from tests.contract.alerts.conftest import Receiver
from tests.contract.alerts.samples import EVENT
from tests.free_ports import free_port
from tests.process.box.harness import PATIENCE, until

TOPIC = "s3cr3t-t0pic"
TOKEN = "tk_s3cr3t"


def made(
    kind: str, receiver: Receiver, env: Mapping[str, str] | None = None, **over: Any
) -> AlertSink:
    urls = {
        "ntfy": f"{receiver.url}/{TOPIC}",
        "webhook": f"{receiver.url}/hooks/{TOPIC}?key={TOPIC}",
        "apprise": f"json://127.0.0.1:{receiver.port}/hooks/{TOPIC}",
    }
    settings = SinkSettings(kind, name=kind, url_env="URL", timeout_s=PATIENCE, **over)
    return build_sink(settings, {"URL": urls[kind], **(env or {})})


async def test_ntfy_publishes_as_json(receiver: Receiver) -> None:
    await made("ntfy", receiver, {"TOKEN": TOKEN}, token_env="TOKEN").send(EVENT)
    (request,) = receiver.requests
    assert request.path == "/"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.json == {
        "topic": TOPIC,
        "title": "vast-1: inodes",
        "message": f"{EVENT.text}\n→ {EVENT.advice}",
        "priority": 4,
        "tags": ["rotating_light"],
    }


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://ntfy.sh/mine", ("https://ntfy.sh/", "mine")),
        ("https://home.example/push/mine/", ("https://home.example/push/", "mine")),
    ],
)
def test_the_topic_of_an_address(url: str, parts: tuple[str, str]) -> None:
    assert split_topic_url(url) == parts


@pytest.mark.parametrize("url", ["https://ntfy.sh", "https://ntfy.sh/", "mine"])
async def test_an_address_without_a_topic_or_a_server(url: str) -> None:
    with pytest.raises(SinkError):
        await build_sink(SinkSettings("ntfy", url_env="URL"), {"URL": url}).send(EVENT)


async def test_a_webhook_gets_the_event(receiver: Receiver) -> None:
    await made("webhook", receiver, {"TOKEN": TOKEN}, token_env="TOKEN").send(EVENT)
    (request,) = receiver.requests
    assert request.path == f"/hooks/{TOPIC}?key={TOPIC}"
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert msgspec.json.decode(request.body, type=AlertEvent) == EVENT


async def test_apprise_sends_through_the_real_library(receiver: Receiver) -> None:
    import apprise

    assert apprise.Apprise(
        f"json://127.0.0.1:{receiver.port}"
    )  # all its modules: seconds on a busy machine
    await made("apprise", receiver).send(EVENT)
    (request,) = receiver.requests
    assert request.json["title"] == EVENT.title
    assert EVENT.text in request.json["message"]
    assert request.json["type"] == "failure"


async def test_apprise_with_several_addresses_in_a_file(receiver: Receiver, tmp_path: Path) -> None:
    path = tmp_path / "targets"
    path.write_text(f"json://127.0.0.1:{receiver.port}/a\njson://127.0.0.1:{receiver.port}/b\n")
    await build_sink(SinkSettings("apprise", url_file=str(path), timeout_s=PATIENCE), {}).send(
        EVENT
    )
    assert sorted(request.path.strip("/") for request in receiver.requests) == ["a", "b"]


async def test_an_apprise_that_hangs_has_one_thread_and_no_second_message(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hangs is given up, not called again while it hangs, and works again when it has ended."""
    import apprise

    ends = threading.Event()
    real, calls = apprise.Apprise.notify, []

    def hang(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(threading.current_thread())
        ends.wait()
        return real(self, *arguments, **named)

    monkeypatch.setattr(apprise.Apprise, "notify", hang)
    settings = SinkSettings("apprise", url_env="URL", timeout_s=0.2)
    quick = AppriseSink(settings, {"URL": f"json://127.0.0.1:{receiver.port}/x"})
    try:
        for _ in range(3):
            with pytest.raises(SinkError, match=r"has not answered within 0\.2 s"):
                await quick.send(EVENT)
        await asyncio.to_thread(until, lambda: calls, "the call that hangs")
        assert len(calls) == 1
        assert calls[0].daemon, "the end of rgt does not wait for it"
    finally:
        ends.set()
    await asyncio.to_thread(calls[0].join, PATIENCE)
    await asyncio.sleep(0)  # the loop hears of the end of the thread
    quick._settings = msgspec.structs.replace(settings, timeout_s=PATIENCE)
    await quick.send(EVENT)
    assert len(receiver.requests) == 2


KINDS = ["ntfy", "webhook", "apprise"]


@pytest.mark.parametrize(
    ("kind", "status"),
    [(kind, status) for kind in KINDS for status in (302, 307, 401, 404, 500)],
)
async def test_any_other_answer_is_a_failure(receiver: Receiver, kind: str, status: int) -> None:
    receiver.status = status
    with pytest.raises(SinkError) as caught:
        await made(kind, receiver).send(EVENT)
    if kind != "apprise":
        assert f"127.0.0.1 answered {status}" in str(caught.value)
    assert len(receiver.requests) == 1, "nothing is sent twice, no redirect is followed"


def nowhere(kind: str) -> AlertSink:
    return made(kind, Receiver(port=free_port()), {"TOKEN": TOKEN})


def broken_answer(kind: str, receiver: Receiver) -> AlertSink:
    receiver.status = 500
    return made(kind, receiver, {"TOKEN": TOKEN})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["nowhere", "answer"])
async def test_no_secret_in_an_error_a_traceback_a_log_or_a_repr(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, kind: str, way: str
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = nowhere(kind) if way == "nowhere" else broken_answer(kind, receiver)
    with pytest.raises(SinkError) as caught:
        await sink.send(EVENT)
    shown = "".join(traceback.TracebackException.from_exception(caught.value).format())
    shown += caplog.text + repr(sink) + repr(caught.value) + repr(caught.value.__cause__)
    assert "s3cr3t" not in shown


async def test_no_secret_in_the_log_when_it_works(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for kind in KINDS:
        await made(kind, receiver).send(EVENT)
    assert len(receiver.requests) == 3
    assert "s3cr3t" not in caplog.text


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret("s3cr3t")
    assert "s3cr3t" not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError):
        import pickle

        pickle.dumps(secret)


def unset(folder: Path) -> SinkSettings:
    return SinkSettings("webhook", url_env="NOT_SET")


def missing(folder: Path) -> SinkSettings:
    return SinkSettings("webhook", url_file=str(folder / "none"))


def empty(folder: Path) -> SinkSettings:
    (folder / "empty").write_text(" \n")
    return SinkSettings("webhook", url_file=str(folder / "empty"))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (unset, "the environment variable NOT_SET is not set"),
        (missing, "No such file or directory"),
        (empty, "is empty: write the address into it"),
    ],
)
async def test_where_an_address_is_not(
    tmp_path: Path, how: Callable[[Path], SinkSettings], words: str
) -> None:
    with pytest.raises(SinkError, match=words):
        await build_sink(how(tmp_path), {}).send(EVENT)


def test_an_address_is_read_at_each_use(tmp_path: Path) -> None:
    path = tmp_path / "url"
    settings = SinkSettings("webhook", url_file=str(path))
    for text in ("https://one/", "https://two/"):
        path.write_text(text + "\n")
        assert read_sink_address(settings, {}).reveal() == text


async def test_apprise_names_the_place_of_an_address_it_does_not_know() -> None:
    settings = SinkSettings("apprise", url_env="URL", timeout_s=PATIENCE)
    sink = AppriseSink(settings, {"URL": f"nosuch://{TOPIC}"})
    with pytest.raises(SinkError, match="does not recognize address number 1") as caught:
        await sink.send(EVENT)
    assert TOPIC not in str(caught.value)
