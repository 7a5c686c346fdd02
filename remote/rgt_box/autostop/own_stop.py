"""The box's own call to its provider: proves that its key may stop it, and parks it.

Nothing here can destroy a box. The key is read each time it is needed, sent only to the one named
host, and never written to a file, a command line or a message. A key that can read its machine
often may not stop it, so a successful read proves nothing. The proof is a call that needs the same
permission as a stop and changes nothing on a running machine.

RunPod: ``RUNPOD_API_KEY`` and ``RUNPOD_POD_ID`` are set in every pod
(https://docs.runpod.io/pods/templates/environment-variables, verified 2026-08); the call is
``POST /v2/pods/ID/action`` (https://docs.runpod.io/api-reference-v2/overview, verified 2026-08).
On a RUNNING pod, ``start`` is refused with 409
(https://docs.runpod.io/api-reference-v2/pods/trigger-a-pod-state-transition, 2026-08).

vast.ai: ``CONTAINER_API_KEY``, which can start and stop only its own instance, and ``CONTAINER_ID``
(https://docs.vast.ai/guides/instances/docker-environment, verified 2026-11); the call is
``PUT /api/v0/instances/ID/`` (https://docs.vast.ai/api-reference/introduction, verified 2026-08).
It sets the wanted state: ``running`` changes nothing on a running instance.

AutoDL: its own ``/usr/bin/shutdown`` stops billing (https://www.autodl.com/docs/instance_pro_api/,
verified 2026-08).
"""

from __future__ import annotations

import json
import os
import re
import stat

from rgt_wire import USER_AGENT

from rgt_box import files, ownership, procstat, secret_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple

    from rgt_wire import JsonObject

    class InstanceState(NamedTuple):
        """The state of our own instance, as the provider reports it."""

        state: str
        """``on``, ``off`` or ``unknown``."""
        text: str
        status: str
        """The platform's status string; "" if it sent none."""

    class StopOutcome(NamedTuple):
        """The outcome of a stop call."""

        proves: str
        """``accepted``, ``nothing``, ``ask`` or ``maybe``; see `PROOFS`."""
        text: str

    class InstanceKey(NamedTuple):
        """The box's own API key and the instance it belongs to."""

        secret: str
        instance: str
else:
    from collections import namedtuple

    InstanceState = namedtuple("InstanceState", "state text status", defaults=("",))
    StopOutcome = namedtuple("StopOutcome", "proves text")
    InstanceKey = namedtuple("InstanceKey", "secret instance")

NAMES = {
    "runpod": ("RUNPOD_API_KEY", "RUNPOD_POD_ID"),
    "vastai": ("CONTAINER_API_KEY", "CONTAINER_ID"),
}
"""Kind → environment variables with the key and its instance ID."""
HOSTS = {"runpod": "https://api.runpod.io", "vastai": "https://console.vast.ai"}
ON = {
    "runpod": ("PROVISIONING", "STARTING", "RUNNING"),
    "vastai": ("running", "loading", "frozen", "rebooting"),
}
OFF = {"runpod": ("EXITED", "TERMINATED"), "vastai": ("exited", "stopped")}
"""Kind → states in which compute is billed (`ON`) and in which it is not (`OFF`). Any other is
unknown."""
STOPS: dict[str, tuple[str, str, dict[str, str]]] = {
    "runpod": ("POST", "/v2/pods/%s/action", {"action": "stop"}),
    "vastai": ("PUT", "/api/v0/instances/%s/", {"state": "stopped"}),
}
"""Kind → method, path and body of the call that parks the box."""
TRIALS: dict[str, tuple[str, dict[str, str]]] = {
    "runpod": ("RUNNING", {"action": "start"}),
    "vastai": ("running", {"state": "running"}),
}
"""Kind → (state, body). In that state, this body sent instead of the stop's changes nothing but
needs the same permission."""
_IDS = {"runpod": re.compile(r"[A-Za-z0-9_-]{1,80}"), "vastai": re.compile(r"[0-9]{1,18}")}

NOTHING, ASK, MAYBE, ACCEPTED = "nothing", "ask", "maybe", "accepted"
PROOFS: dict[str, dict[Any, str]] = {
    "runpod": {401: NOTHING, 403: NOTHING, 404: ASK, 409: ASK, 422: NOTHING, 429: NOTHING},
    "vastai": {
        401: NOTHING,
        403: NOTHING,
        404: ASK,
        409: ASK,
        429: NOTHING,
        "no_such_instance": ASK,
        "auth_error": NOTHING,
    },
}
"""Kind → HTTP status or error code → what it proves: nothing was done, or ask for the state.
Anything else: the stop may have been done."""

TIMEOUT = 30.0
MOST = 1 << 20
"""Bytes of a response that are read."""
MARKS = ("/root/autodl-tmp", "/etc/network_turbo")
"""Files that exist only on AutoDL instances: the data disk, and the script of its proxy
(https://www.autodl.com/docs/env/, https://www.autodl.com/docs/network_turbo/, verified 2026-08)."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class NoStopKey(Exception):
    """This box cannot stop itself; the message says why."""


def own_key(kind: str, own: Mapping[str, str] | None = None) -> InstanceKey:
    """Return the key with which this box stops itself.

    The order is: a key that the user stored on the box, the environment of process 1 (set by the
    platform), our own environment.

    Raises:
        NoStopKey: none of them has a key and an instance ID.
    """
    names = NAMES[kind]
    given = _stored_key(names[0])
    for environment in (_environment_of_init(), os.environ if own is None else own):
        secret, instance = (environment.get(name, "").strip() for name in names)
        secret = given or secret
        if secret and instance:
            # The ID becomes a part of the URL's path.
            if not _IDS[kind].fullmatch(instance):
                raise NoStopKey(f"{names[1]} is not an ID: {instance[:80]!r}")
            return InstanceKey(secret, instance)
    raise NoStopKey(
        "this box cannot stop itself: {} and {} are not in its environment".format(*names)
    )


def _stored_key(name: str) -> str:
    """Return the key stored with ``rgt secret BOX NAME``; "" without one.

    It takes precedence: users store one when the platform's own key may not stop the box.
    """
    for row in secret_store.list_secrets():
        if row["name"] == name and row["job"] is None and not secret_store.why_unfit(row["path"]):
            data = files.read_file(row["path"], secret_store.MOST_SECRET_BYTES)
            if data is not None:
                return data.decode("utf-8", "replace").strip()
    return ""


def _environment_of_init() -> dict[str, str]:
    """Return the environment of process 1, if it runs as this user."""
    # Another user could have written the environment of a process that we trust with a key.
    if set(ownership.process_uids(1)) != {os.geteuid()}:
        return {}
    found = {}
    # An SSH session often lacks the platform's variables; process 1 has them.
    for item in (procstat.read_whole("/proc/1/environ") or b"").split(b"\0"):
        name, _, value = item.partition(b"=")
        found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


class OwnStop:
    """The provider call that parks this box.

    Args:
        stop: ``kind``, ``url``, ``command``, ``marks`` of a request.
        instance: The platform's ID of the box, as given at arming.

    Raises:
        NoStopKey: there is no key, or it belongs to another instance.
    """

    def __init__(self, stop: Mapping[str, Any], instance: str) -> None:
        self.kind = str(stop["kind"])
        self._command = [str(word) for word in stop.get("command") or []]
        self._key = InstanceKey("", instance)
        self._url = ""
        if self.kind == "command":
            why = _command_unsafe(self._command, list(stop.get("marks") or []) or list(MARKS))
            if why:
                raise NoStopKey(f"this box cannot stop itself: {why}")
            return
        self._key = own_key(self.kind)
        # On a copied disk or a wrong fleet row, the key would stop another person's box.
        if self._key.instance != instance:
            raise NoStopKey(
                (
                    f"this box reports that it is {self._key.instance}, not "
                    f"{instance[:80]}: correct the instance in the fleet file"
                )
            )
        self._url = _checked_url(str(stop.get("url") or HOSTS[self.kind]))

    def query_state(self) -> InstanceState:
        """Ask the provider for the instance's state; any unclear response is ``unknown``."""
        if self.kind == "command":
            return InstanceState("on", "this process runs, so the box does", "")
        if self.kind == "runpod":
            path = "/v2/pods/%s"
        else:
            path = "/api/v0/instances/%s/?owner=me"
        try:
            status, data = self._send_request("GET", path % self._key.instance, None)
        except OSError as error:
            return InstanceState("unknown", f"no answer: {self._clean_text(error)}", "")
        # vast.ai reports some errors with HTTP 200 and ``success: false``.
        if status != 200 or not isinstance(data, dict) or data.get("success") is False:
            return InstanceState("unknown", "answered %d%s" % (status, self._error_text(data)), "")
        box: Any = data
        if self.kind != "runpod":
            box = data.get("instances")
        # vast.ai sends a number, RunPod a string.
        if not isinstance(box, dict) or str(box.get("id")) != self._key.instance:
            return InstanceState("unknown", "answered with something other than this instance", "")
        if self.kind == "runpod":
            state = box.get("status")
        else:
            state = box.get("actual_status")
        word = self._clean_text(state)
        if state in ON[self.kind]:
            if box.get("locked") is True:
                return InstanceState(
                    "unknown",
                    "the instance is locked: the platform refuses a stop; unlock it",
                    word,
                )
            if box.get("intended_status") == "stopped":
                # No status: the test of the key would set the wanted state back to running.
                return InstanceState("on", f"it is {word}, and is being stopped", "")
            return InstanceState("on", f"it is {word}", word)
        return InstanceState("off" if state in OFF[self.kind] else "unknown", f"it is {word}", word)

    def try_stop_right(self) -> tuple[bool, str]:
        """Return whether the key may stop this box, and why, by a call that changes nothing."""
        state, body = TRIALS[self.kind]
        seen = self.query_state()
        if seen.state != "on":
            return False, f"the box's key cannot be used: {seen.text}"
        # In any other state the trial body would do something: start a pod that is stopping.
        if seen.status != state:
            return (
                False,
                f"{seen.text}; its key can be tested only when it is {state}: try again then",
            )
        method, path, _ = STOPS[self.kind]
        try:
            status, data = self._send_request(method, path % self._key.instance, body)
        except OSError as error:
            return False, f"no answer to the test of its key: {self._clean_text(error)}"
        text = "%d%s" % (status, self._error_text(data))
        # Refused because of the pod's state, not for a missing permission.
        if self.kind == "runpod" and status == 409:
            return (
                True,
                f"its key may stop this instance: a start of the running pod was refused ({text})",
            )
        if (
            self.kind == "vastai"
            and status == 200
            and isinstance(data, dict)
            and data.get("success") is True
        ):
            return (
                True,
                (
                    "its key may stop this instance: setting the running instance to running was "
                    "accepted"
                ),
            )
        if status in (401, 403) and not _is_blocked_by_cloudflare(data):
            return False, "its key may read this instance, but not stop it ({}). {}".format(
                text,
                "Create a key that may stop it, with as few rights as possible, and put it here: "
                f"rgt secret BOX {NAMES[self.kind][0]}",
            )
        return (
            False,
            f"no proof that its key may stop this instance: the test was answered with {text}",
        )

    def send_stop(self) -> StopOutcome:
        """Send the stop call once. The box may be off before this returns."""
        if self.kind == "command":
            return self._run_command()
        method, path, body = STOPS[self.kind]
        try:
            status, data = self._send_request(method, path % self._key.instance, body)
        except OSError as error:
            # The request may have been sent before the error, so the caller must ask for the state.
            return StopOutcome(MAYBE, f"no answer: {self._clean_text(error)}")
        text = "answered %d%s" % (status, self._error_text(data))
        wrong = isinstance(data, dict) and (data.get("success") is False or bool(data.get("error")))
        # A proxy in between may answer 200 with an HTML page.
        fine = status == 200 and isinstance(data, dict) and not wrong
        if fine and (self.kind == "runpod" or data.get("success") is True):
            return StopOutcome(ACCEPTED, text)
        row = PROOFS[self.kind]
        if isinstance(data, dict):
            code = data.get("error")
        else:
            code = None
        if isinstance(code, str):
            # The error code is more precise than the status that carries it.
            known = row.get(code)
        else:
            known = None
        return StopOutcome(known or row.get(status, MAYBE), text)

    def _run_command(self) -> StopOutcome:
        import subprocess

        try:
            done = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            # A shutdown may end this process before the command returns.
            return StopOutcome(MAYBE, f"{self._command[0]} did not end")
        except OSError as error:
            return StopOutcome(NOTHING, f"{self._command[0]} could not be run: {error.strerror}")
        words = done.stderr.decode("utf-8", "replace")[-200:]
        if done.returncode:
            return StopOutcome(
                MAYBE,
                "%s ended with %d %s"
                % (self._command[0], done.returncode, self._clean_text(words)),
            )
        return StopOutcome(ACCEPTED, f"{self._command[0]} ended with 0")

    def _send_request(self, method: str, path: str, body: JsonObject | None) -> tuple[int, Any]:
        """Return the HTTP status, and the JSON or text of a response. Redirects are not followed.

        A redirect would send the key to another host.

        Raises:
            OSError: there was no response.
        """
        import http.client
        from urllib.parse import urlsplit

        parts = urlsplit(self._url)
        maker: Any
        if parts.scheme == "https":
            maker = http.client.HTTPSConnection
        else:
            maker = http.client.HTTPConnection
        headers = {
            "Authorization": "Bearer " + self._key.secret,
            "Accept": "application/json",
            "User-Agent": USER_AGENT,
        }
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = maker(parts.hostname, parts.port, timeout=TIMEOUT)
        try:
            connection.request(method, parts.path.rstrip("/") + path, data, headers)
            answer = connection.getresponse()
            raw = answer.read(MOST)
        except (http.client.HTTPException, ValueError) as error:
            # Only the class: the text of an http.client error may quote the header with the key.
            raise OSError(self._clean_text(type(error).__name__)) from None
        finally:
            connection.close()
        try:
            return answer.status, json.loads(raw)
        except (ValueError, RecursionError):
            return answer.status, raw[:1000].decode("utf-8", "replace")

    def _error_text(self, data: Any) -> str:
        """Return the error text of a response, prefixed with ": "; "" without one."""
        if _is_blocked_by_cloudflare(data):
            return (
                ": Cloudflare, in front of the platform, refused this program (error code: 1010), "
                "before the key was read; a proxy may have changed the User-Agent header "
                f"{USER_AGENT}"
            )
        if not isinstance(data, dict):
            return ""
        words = [
            data[key]
            for key in ("detail", "msg", "error", "message", "status")
            if isinstance(data.get(key), str)
        ]
        if words:
            return f": {self._clean_text(words[0])}"
        return ""

    def _clean_text(self, value: Any) -> str:
        """Return provider text shortened, printable, and without the key."""
        text = str(value)
        if self._key.secret:
            text = text.replace(self._key.secret, "***")
        return "".join(char if char.isprintable() else " " for char in text)[:200].strip()


def _checked_url(url: str) -> str:
    """Return a URL that the key may be sent to.

    Raises:
        NoStopKey: it is not https (http is allowed only for loopback), or malformed.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        fine = bool(parts.hostname) and parts.port != 0 and not parts.username and not parts.query
    except ValueError:
        fine = False
    if not fine or parts.scheme not in ("https", "http"):
        raise NoStopKey(f"stop.url is not the address of a platform: {url[:200]!r}")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise NoStopKey("stop.url must begin with https: the key would be sent unencrypted")
    return url.rstrip("/")


def _command_unsafe(words: list[str], marks: list[str]) -> str:
    """Return why a command is not the platform's own stop command; "" if it is."""
    if not words or not words[0].startswith("/"):
        return "stop.command needs the full path of a program"
    path = os.path.realpath(words[0])
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or not os.access(path, os.X_OK):
            return f"{words[0]} cannot be run"
        # Otherwise another user could put a program here that only pretends to stop the box.
        if found.st_uid != 0 or found.st_mode & _OTHERS:
            return f"users other than root can write to {words[0]}"
        unsafe = ownership.why_unsafe(os.path.dirname(path))
    except OSError as error:
        return f"{words[0]}: {error.strerror}"
    if unsafe:
        return unsafe
    # Images link /sbin/shutdown to it; it stops the container's processes at most.
    if os.path.basename(path) == "systemctl":
        return f"{words[0]} is the system's own command, which does not end billing"
    if not any(os.path.exists(mark) for mark in marks):
        return (
            f"none of {', '.join(marks)} is there: this is not the platform that {words[0]} "
            "belongs to"
        )
    return ""


def _is_blocked_by_cloudflare(data: Any) -> bool:
    """Return whether Cloudflare blocked our User-Agent, so that the platform never saw the request.

    The text is ``error code: 1010``, see
    https://github.com/source-cooperative/data.source.coop/issues/134 (2026-05)
    """
    return isinstance(data, str) and re.search(r"error code: 1010\b", data) is not None


def prove_stop_right(own: OwnStop) -> tuple[bool, str]:
    """Return whether this box may stop itself, and what showed it. Nothing is changed."""
    if (
        own.kind == "command"
    ):  # checked in __init__: only root can write the program, and a platform marker exists
        return True, "the platform's own command can be run here; its outcome cannot be checked"
    return own.try_stop_right()
