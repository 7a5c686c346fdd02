"""The ``sink`` verb and its sender: posts events that cost money to one webhook.

The whole address is a secret: it is read from stdin, stored in a file only this user can read, and
never printed. Each message is sent by a separate process with a few retries; the recorder does not
wait for it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from rgt_wire import USER_AGENT

from rgt_box import files, jsonline, options, ownership, place
from rgt_box.background import error_text
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any, NamedTuple

    from rgt_wire import JsonObject

    class SinkAddress(NamedTuple):
        """The webhook URL and its bearer token ("" if none)."""

        url: str
        token: str
else:
    from collections import namedtuple

    SinkAddress = namedtuple("SinkAddress", "url token")

HELP = """
usage: sink < ADDRESS       save an address to call: the URL on the first line, a bearer token on the second
       sink --test          send one message now
       sink --status        print which host is called, as one JSON line; never the address itself
       sink --remove        forget it

Called for: queue-done, cell-failed, disk-full, preemption, autostop-warned, autostop-stopping, autostop-failed.

Exit status: 0 done, 1 not delivered, or no address, 2 not an address that can be called.

Example: sink < address.txt
"""
OK, UNDELIVERED, USAGE = 0, 1, 2
FILE = state_files.SINK
EVENTS = (
    "queue-done",
    "cell-failed",
    "disk-full",
    "preemption",
    "autostop-warned",
    "autostop-stopping",
    "autostop-failed",
)
TRIES, PAUSES, TIMEOUT = 3, (0.0, 5.0, 30.0), 10.0
FULL, ROOM = 0.98, 0.95
"""Share of a disk's bytes or inodes that triggers ``disk-full``, and below which it may trigger
again."""
MOST_ADDRESS, MOST_ANSWER, MOST_TEXT = 4096, 65536, 1500
LOOPBACK = ("127.0.0.1", "localhost", "::1")

SHAPES = (
    # https://docs.ntfy.sh/publish/#publish-as-json
    ("ntfy", ("ntfy.sh",)),
    # https://api.slack.com/messaging/webhooks
    ("slack", ("hooks.slack.com",)),
    # https://discord.com/developers/docs/resources/webhook
    ("discord", ("discord.com", "discordapp.com")),
    # https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot
    ("feishu", ("open.feishu.cn", "open.larksuite.com")),
    # https://open.dingtalk.com/document/robots/custom-robot-access
    ("dingtalk", ("oapi.dingtalk.com",)),
    # https://developer.work.weixin.qq.com/document/path/91770
    ("wecom", ("qyapi.weixin.qq.com",)),
)
"""Message format → hosts that accept it. Any other host gets the plain JSON object."""


class Undelivered(Exception):
    """A message was not delivered. The text names only the host, because the address is secret."""

    def __init__(self, words: str, final: bool = False) -> None:
        super().__init__(words)
        self.final = final
        """Retrying would fail in the same way."""


def message_format(host: str) -> str:
    """Return the message format that a host accepts; ``webhook`` is the plain JSON object."""
    return next(
        (shape for shape, hosts in SHAPES if any(_is_in_domain(host, one) for one in hosts)),
        "webhook",
    )


def _is_in_domain(host: str, domain: str) -> bool:
    return host == domain or host.endswith("." + domain)


def request_body(shape: str, event: JsonObject) -> JsonObject:
    """Return the request body. Characters that a chat would interpret as markup are replaced.

    Args:
        shape: A format returned by `message_format`.
        event: ``title``, ``text``, ``box``, ``event``, ``at``.
    """
    words = f"{event['title']}\n{event['text']}"
    if shape == "webhook":
        return event
    # Full-width look-alikes: each chat would need another escaping.
    quiet = words.replace("@", "＠").replace("<", "‹").replace(">", "›")
    if shape == "slack":
        return {"text": quiet}
    if shape == "discord":
        # Without it, @everyone in a log line would ping the whole server.
        return {"content": quiet, "allowed_mentions": {"parse": []}}
    if shape == "feishu":
        return {"msg_type": "text", "content": {"text": quiet}}
    if shape == "ntfy":
        return {
            "title": event["title"],
            "message": event["text"],
            "tags": ["warning"],
            "priority": 4,
        }
    return {"msgtype": "text", "text": {"content": quiet}}


def post_target(shape: str, url: str) -> tuple[str, JsonObject]:
    """Return the URL to post to and extra body fields: ntfy takes the topic in the body."""
    if shape != "ntfy":
        return url, {}
    root, _, topic = url.rstrip("/").rpartition("/")
    return root + "/", {"topic": topic}


def post_event(address: SinkAddress, event: JsonObject) -> str:
    """Send a message once; returns the host and its HTTP status as text.

    Raises:
        Undelivered: the host was not reached or did not accept the message.
    """
    import http.client
    from urllib.parse import urlsplit

    host = check_address(address.url)
    shape = message_format(host)
    url, more = post_target(shape, address.url)
    body = json.dumps(dict(request_body(shape, event), **more), ensure_ascii=False).encode(
        "utf-8", "replace"
    )
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
    if address.token:
        headers["Authorization"] = "Bearer " + address.token
    parts = urlsplit(url)
    maker: Any
    if parts.scheme == "https":
        maker = http.client.HTTPSConnection
    else:
        maker = http.client.HTTPConnection
    connection = maker(parts.hostname, parts.port, timeout=TIMEOUT)
    try:
        connection.request(
            "POST", (parts.path or "/") + ("?" + parts.query if parts.query else ""), body, headers
        )
        answer = connection.getresponse()
        said = jsonline.loads_dict(answer.read(MOST_ANSWER)) or {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Other exception texts may contain the address, which is a secret.
        why = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise Undelivered(f"{host} cannot be reached: {why}") from None
    finally:
        connection.close()
    # DingTalk and WeCom send errcode, Feishu code or StatusCode, all with HTTP 200.
    code = next(
        (said[key] for key in ("errcode", "code", "StatusCode") if isinstance(said.get(key), int)),
        0,
    )
    if not 200 <= answer.status < 300:
        # Redirects are final: following one would send the secret path to another host.
        final = 300 <= answer.status < 500 and answer.status not in (408, 429)
        raise Undelivered("%s answered %d" % (host, answer.status), final)
    if code and shape in ("feishu", "dingtalk", "wecom"):
        raise Undelivered(
            "%s answered %d, with the error %d" % (host, answer.status, code), final=True
        )
    return "%s answered %d" % (host, answer.status)


def check_address(url: str) -> str:
    """Return the host of an address.

    Raises:
        Undelivered: the address is not https (http is allowed only for loopback).
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        fine = (
            bool(host)
            and parts.port != 0
            # http.client encodes the path as ASCII.
            and url.isascii()
            and not any(char <= " " for char in url)
        )
    except ValueError:
        fine = False
        host = ""
    if not fine or parts.scheme not in ("https", "http"):
        raise Undelivered("the address is not an https address", final=True)
    if parts.scheme == "http" and host not in LOOPBACK:
        raise Undelivered(
            "the address must begin with https: it is secret, and would be sent unencrypted",
            final=True,
        )
    return host


def deliver_event(address: SinkAddress, event: JsonObject) -> str:
    """Send a message with up to `TRIES` attempts; returns the result of `post_event`.

    Raises:
        Undelivered: every attempt failed, or one failed with an error that a retry cannot fix.
    """
    for number in range(TRIES):
        try:
            return post_event(address, event)
        except Undelivered as error:
            if error.final or number == TRIES - 1:
                raise
        from rgt_box.autostop import story  # here: only another try needs it

        time.sleep(PAUSES[number + 1] * story.wait_factor())
    raise AssertionError("unreachable")


def load_address(folder: str) -> SinkAddress | None:
    """Return the stored address; None without one or other users can access the file."""
    path = os.path.join(folder, FILE)
    if not ownership.is_ours(path):
        return None
    found = files.read_json(path, 65536) or {}
    url = found.get("url")
    token = found.get("token")
    if isinstance(url, str) and url:
        return SinkAddress(url, token if isinstance(token, str) else "")
    return None


class EventSender:
    """Starts a delivery process per event, from the recorder.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE)
        self._under_way: list[subprocess.Popen[bytes]] = []
        self._full: set[str] = set()

    def send_disk_full(self, disks: list[JsonObject]) -> None:
        """Send ``disk-full`` once each time a disk fills up."""
        for disk in disks:
            mount = str(disk.get("mount"))
            used = disk.get("bytes_used")
            free = disk.get("bytes_free")
            shares = [
                used / (used + free)
                if used is not None and free is not None and used + free
                else 0.0
            ]
            if disk.get("inodes_total"):
                shares.append((disk.get("inodes_used") or 0) / disk["inodes_total"])
            if max(shares) < ROOM:
                self._full.discard(mount)
            elif max(shares) >= FULL and mount not in self._full:
                self._full.add(mount)
                if shares[0] == max(shares):
                    what = "bytes"
                else:
                    what = "inodes"
                self.send(
                    "disk-full", f"{mount}: {100.0 * max(shares):.1f}% of its {what} are used"
                )

    def send(self, kind: str, text: str) -> bool:
        """Start delivery of an event and return at once, with whether a process was started.

        Nothing is sent for kinds outside `EVENTS` or without a stored address.
        """
        self._under_way = [child for child in self._under_way if child.poll() is None]
        # Messages in flight at most; further events are dropped, since they add nothing new.
        most_at_once = 4
        if (
            kind not in EVENTS
            or files.signature(self._path) is None
            or len(self._under_way) >= most_at_once
        ):
            return False
        import subprocess  # imported here: most boxes have no sink

        try:
            child = subprocess.Popen(
                place.agent_command("sink", "--deliver"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # The message must still be delivered if the recorder ends now.
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            return False
        self._under_way.append(child)
        assert child.stdin is not None
        try:
            # The event fits into the pipe's buffer (64 KiB), so this write cannot block the
            # recorder.
            child.stdin.write(jsonline.encode_line(build_event(kind, text)))
            child.stdin.close()
        except OSError:
            return False
        return True


def build_event(kind: str, text: str) -> JsonObject:
    """Return an event as the JSON object that is sent."""
    box = os.uname().nodename
    return {
        "title": f"rgt: {kind.replace('-', ' ')} on {box}",
        "text": "".join(char if char.isprintable() else " " for char in text)[:MOST_TEXT],
        "box": box,
        "event": kind,
        "at": round(time.time(), 3),
    }


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    spec = dict.fromkeys(("--test", "--status", "--remove", "--deliver"), "flag")
    found = options.parse_or_exit(argv, spec, HELP)
    folder = place.state_dir()
    if sum(bool(found[name]) for name in ("test", "status", "remove", "deliver")) > 1:
        print("sink: only one action at a time (see --help)", file=sys.stderr)
        return USAGE
    if found["remove"]:
        files.unlink_if_exists(os.path.join(folder, FILE))
        jsonline.print_frame({"set": False})
        return OK
    if not (found["status"] or found["test"] or found["deliver"]):
        return _store_address(folder)
    address = load_address(folder)
    if found["status"]:
        jsonline.print_frame(_address_status(address))
        return OK
    if address is None:
        print("sink: no address: give one on stdin", file=sys.stderr)
        return UNDELIVERED
    event = build_event("test", "this box can call you")
    if found["deliver"]:
        # The recorder blocks these signals, and child processes inherit the mask.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        event = jsonline.loads_dict(sys.stdin.buffer.readline(65536)) or event
    try:
        said = deliver_event(address, event)
    except Undelivered as error:
        jsonline.print_frame({"ok": False, "text": str(error)})
        return UNDELIVERED
    jsonline.print_frame({"ok": True, "text": said})
    return OK


def _address_status(address: SinkAddress | None) -> JsonObject:
    if address is None:
        return {"set": False}
    try:
        host = check_address(address.url)
    except Undelivered as error:
        return {"set": True, "host": "", "kind": "", "text": str(error)}
    return {"set": True, "host": host, "kind": message_format(host)}


def _store_address(folder: str) -> int:
    data = sys.stdin.buffer.read(MOST_ADDRESS + 1)
    # Never a part of it: a cut token would be refused only when the box needs to call.
    if len(data) > MOST_ADDRESS:
        print(
            f"sink: the address is longer than {MOST_ADDRESS} bytes with its token", file=sys.stderr
        )
        return USAGE
    lines = data.decode("utf-8", "replace").split("\n")
    token = ""
    if len(lines) > 1:
        token = lines[1].strip()
    address = SinkAddress(lines[0].strip(), token)
    try:
        check_address(address.url)
        ownership.ensure_private_folder(folder)
        line = jsonline.encode_line({"url": address.url, "token": address.token})
        files.replace_file(os.path.join(folder, FILE), line, sync=True)
    except Undelivered as error:
        print(f"sink: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"sink: it cannot be saved: {error_text(error)}", file=sys.stderr)
        return UNDELIVERED
    jsonline.print_frame(_address_status(address))
    return OK
