"""The box can call: one address, kept by itself, called for the few events that cost money, on a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rgt_box.autostop import sink

from tests.process.box.harness import Agent, make_job, until


class Hook(ThreadingHTTPServer):
    """Takes messages; `answers` are used up first."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answers: list[int] = []
        super().__init__(("127.0.0.1", 0), Taker)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook/secret-path?x=1"


class Taker(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.answers.pop(0) if self.server.answers else 200
        self.server.paths.append(self.path)
        self.server.headers.append(dict(self.headers))
        self.server.got.append(json.loads(body))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_an_address_is_kept_by_itself_and_never_shown(agent: Agent, hook: Hook) -> None:
    done = agent.run("sink", stdin=f"{hook.url}\nbearer-token\n".encode())
    assert json.loads(done.stdout) == {"set": True, "host": "127.0.0.1", "kind": "webhook"}
    file = agent.state / "sink.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(agent.run("sink", "--test").stdout) == {
        "ok": True,
        "text": "127.0.0.1 answered 200",
    }
    assert hook.paths == ["/hook/secret-path?x=1"]
    assert hook.headers[0]["Authorization"] == "Bearer bearer-token"
    assert set(hook.got[0]) == {"title", "text", "box", "event", "at"}
    for words in (["--status"], ["--test"]):
        done = agent.run("sink", *words)
        assert b"secret-path" not in done.stdout + done.stderr
        assert b"bearer-token" not in done.stdout + done.stderr
    assert json.loads(agent.run("sink", "--remove").stdout) == {"set": False}
    assert not file.exists()
    assert agent.run("sink", "--test").returncode == 1


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"ftp://x/y\n",
        b"http://ntfy.example/topic\n",
        b"https://\n",
        b"https://a b/\n",
        b"https://a/\n" + b"t" * 5000,
    ],
)
def test_what_is_no_address_is_refused(agent: Agent, line: bytes) -> None:
    done = agent.run("sink", stdin=line)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"sink: the address ")
    assert not (agent.state / "sink.json").exists()


@pytest.mark.parametrize("given", ["before", "while it records"])
def test_a_queue_that_fails_and_ends_calls(
    agent: Agent, hook: Hook, tmp_path: Path, given: str
) -> None:
    if given == "before":
        assert agent.run("sink", stdin=hook.url.encode()).returncode == 0
    job = make_job(tmp_path / "job", ["false"], ["a"])
    channel = agent.watch(jobs=[str(job)], interval=0.1)
    channel.expect(lambda frame: type(frame).__name__ == "QueueState")
    until(lambda: (agent.state / "recorder-queues.json").exists(), "the first sight of the queue")
    if given != "before":
        assert agent.run("sink", stdin=hook.url.encode()).returncode == 0
    agent.run("queue", "run", "--job", str(job))

    def calls() -> list[dict[str, Any]]:
        """Return those of the queue: the disk of this machine may be full as well."""
        return [event for event in hook.got if event["event"] != "disk-full"]

    until(lambda: len(calls()) >= 2, "the calls")
    assert sorted(str(event["event"]) for event in calls()) == ["cell-failed", "queue-done"]
    assert any(event["text"].startswith("a: failed, exit 1") for event in calls())


def test_it_is_tried_again_only_where_that_may_help(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "PAUSES", (0.0, 0.0, 0.0))
    address = sink.SinkAddress(hook.url, "")
    hook.answers = [500, 429, 200]
    assert sink.deliver_event(address, sink.build_event("test", "x")) == "127.0.0.1 answered 200"
    hook.answers = [500, 500, 500, 200]
    with pytest.raises(sink.Undelivered, match="answered 500"):
        sink.deliver_event(address, sink.build_event("test", "x"))
    assert len(hook.got) == 6
    hook.answers = [404]
    with pytest.raises(sink.Undelivered, match="answered 404"):
        sink.deliver_event(address, sink.build_event("test", "x"))
    assert len(hook.got) == 7


def test_a_full_disk_calls_once_for_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[tuple[str, str]] = []
    sender = sink.EventSender(str(tmp_path))
    monkeypatch.setattr(sender, "send", lambda kind, text: sent.append((kind, text)))
    full = {"mount": "/w", "bytes_used": 99, "bytes_free": 1, "inodes_used": 1, "inodes_total": 100}
    for disk in (full, full, full | {"bytes_used": 970}, full, {"mount": "/x", "error": "hangs"}):
        sender.send_disk_full([disk])
    assert sent == [("disk-full", "/w: 99.0% of its bytes are used")]
    sender.send_disk_full([full | {"bytes_used": 1, "bytes_free": 9}])
    sender.send_disk_full([full | {"bytes_used": 1, "bytes_free": 9, "inodes_used": 98}])
    assert sent[1:] == [("disk-full", "/w: 98.0% of its inodes are used")]


@pytest.mark.parametrize(
    ("url", "shape"),
    [
        ("https://ntfy.sh/topic", "ntfy"),
        ("https://hooks.slack.com/services/T/B/x", "slack"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/x", "feishu"),
        ("https://oapi.dingtalk.com/robot/send?access_token=x", "dingtalk"),
        ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=x", "wecom"),
        ("https://evilntfy.sh/x", "webhook"),
        ("https://example.com/ntfy.sh", "webhook"),
    ],
)
def test_hosts_tell_the_form_of_a_message(url: str, shape: str) -> None:
    assert sink.message_format(sink.check_address(url)) == shape


def test_the_forms() -> None:
    event = {"title": "t @all", "text": "<b>", "box": "lab", "event": "queue-done", "at": 1.0}
    assert sink.request_body("webhook", event) == event
    assert sink.request_body("slack", event) == {"text": "t ＠all\n‹b›"}
    assert sink.request_body("discord", event) == {
        "content": "t ＠all\n‹b›",
        "allowed_mentions": {"parse": []},
    }
    assert sink.request_body("feishu", event) == {
        "msg_type": "text",
        "content": {"text": "t ＠all\n‹b›"},
    }
    assert sink.request_body("dingtalk", event) == {
        "msgtype": "text",
        "text": {"content": "t ＠all\n‹b›"},
    }
    assert sink.request_body("wecom", event) == {
        "msgtype": "text",
        "text": {"content": "t ＠all\n‹b›"},
    }
    assert sink.post_target("ntfy", "https://ntfy.sh/topic") == (
        "https://ntfy.sh/",
        {"topic": "topic"},
    )
    assert sink.request_body("ntfy", event)["message"] == "<b>"


def test_a_box_without_an_address_starts_nothing(tmp_path: Path) -> None:
    assert sink.EventSender(str(tmp_path)).send("queue-done", "x") is False
    (tmp_path / "sink.json").write_text('{"url": "https://ntfy.sh/x"}')
    assert sink.EventSender(str(tmp_path)).send("agent-started", "x") is False
    (tmp_path / "sink.json").chmod(0o666)
    assert sink.load_address(str(tmp_path)) is None
