"""The armed plan: validated, bound to this instance and boot, and stored for the recorder.

A plan is void on another boot, on another instance, or after a suspend. So a file on a volume that
moved to another box cannot stop that box.
"""

from __future__ import annotations

import os
import re

from rgt_box import files, jsonline, ownership, place, procstat
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping

    from rgt_wire import JsonObject

    from rgt_box.autostop.idle_clock import ClockReading

FILE, LOCK = state_files.ARMED, "autostop.lock"
MODES, ACTIONS, KINDS = ("idle", "lease"), ("park", "ask"), ("runpod", "vastai", "command")
LOCK_WAIT = 10.0
SLEPT = 60.0
"""Seconds asleep since arming after which the machine counts as suspended and resumed."""
LONGEST = 366 * 86400.0
ANY = "*"
"""In ``accept_unsaving``: accept any run."""

_SECONDS = {
    "idle_s": 2700.0,
    "lease_s": 28800.0,
    "warn_s": 600.0,
    "inspect_s": 0.0,
    "no_progress_s": 0.0,
}
_LISTS = ("jobs", "results", "ignore", "mounts", "durable", "accept_unsaving")
_WORDS = ("boot", "instance", "box")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?")
_UNITS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class WrongRequest(Exception):
    """The request is invalid; the message says which field and why."""


class PlanNotStored(Exception):
    """No directory is writable, or the lock is taken; the message says which."""


def parse_request(raw: Mapping[str, Any]) -> JsonObject:
    """Return a request with every field validated and filled in.

    Raises:
        WrongRequest: a field is invalid; the message names it.
    """
    found: JsonObject = {"mode": raw.get("mode"), "action": raw.get("action")}
    for key, known in (("mode", MODES), ("action", ACTIONS)):
        if found[key] not in known:
            raise WrongRequest(f"{key} must be one of {', '.join(known)}, not {raw.get(key)!r}")
    for key, default in _SECONDS.items():
        found[key] = _parse_seconds(key, raw.get(key, default))
    for key in ("idle_s", "lease_s"):
        if found["mode"] == key[:-2] and not found[key] > 0:
            raise WrongRequest(f"{key} must be more than 0")
    for key in _LISTS:
        value = raw.get(key) or []
        if not isinstance(value, list) or not all(
            isinstance(item, str) and "\0" not in item for item in value
        ):
            raise WrongRequest(f"{key} must be a list of strings")
        found[key] = value
    for key in _WORDS:
        if not isinstance(raw.get(key), str) or not raw[key]:
            raise WrongRequest(f"{key} is missing")
        found[key] = raw[key]
    for path in found["durable"]:
        if not path.startswith("/"):
            raise WrongRequest(f"durable must contain absolute paths, not {path!r}")
    found["pattern"] = _parse_pattern(raw.get("pattern"))
    found["stop"] = _parse_stop(raw.get("stop"), found["action"])
    found["accept_holders"] = _parse_accepted_holders(raw.get("accept_holders") or [])
    return found


def _parse_seconds(key: str, value: Any) -> float:
    # bool is a subclass of int; the chained comparison also refuses NaN.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LONGEST:
        raise WrongRequest("%s must be seconds, from 0 to %d, not %r" % (key, LONGEST, value))
    return float(value)


def _parse_pattern(value: Any) -> str | None:
    if value is None:
        return None
    try:
        re.compile(value)
    except (re.error, TypeError) as error:
        raise WrongRequest(f"pattern: {error}") from None
    return str(value)


def _parse_stop(value: Any, action: str) -> JsonObject | None:
    if value is None:
        if action != "ask":
            raise WrongRequest("stop is missing: only the action ask needs none")
        return None
    if not isinstance(value, dict) or value.get("kind") not in KINDS:
        raise WrongRequest(f"stop.kind must be one of {', '.join(KINDS)}")
    found: JsonObject = {
        "kind": value["kind"],
        "url": value.get("url") or "",
        "command": [],
        "marks": [],
    }
    if not isinstance(found["url"], str):
        raise WrongRequest("stop.url must be a string")
    for key in ("command", "marks"):
        words = value.get(key) or []
        if not isinstance(words, list) or not all(
            isinstance(word, str) and "\0" not in word for word in words
        ):
            raise WrongRequest(f"stop.{key} must be a list of strings")
        found[key] = words
    return found


def _parse_accepted_holders(value: Any) -> list[list[float]]:
    if isinstance(value, list):
        rows = value
    else:
        rows = [None]
    found = []
    for row in rows:
        pid, started = (
            (row.get("pid"), row.get("started")) if isinstance(row, dict) else (None, None)
        )
        if (
            not isinstance(pid, int)
            or isinstance(pid, bool)
            or not isinstance(started, (int, float))
        ):
            raise WrongRequest('accept_holders must contain {"pid", "started"} of each')
        found.append([pid, float(started)])
    return found


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``2h``, ``90m`` or ``7200``.

    Raises:
        WrongRequest: it is not a duration, or is zero.
    """
    match = _SPAN.fullmatch(text.strip())
    seconds = 0.0
    if match:
        seconds = float(match.group(1)) * _UNITS[match.group(2)]
    if not 0 < seconds <= LONGEST:
        raise WrongRequest(f"{text!r} is not a duration: write 7200, 90m or 2h")
    return seconds


def bind_plan(
    request: Mapping[str, Any], at: ClockReading, key: Mapping[str, Any] | None
) -> JsonObject:
    """Return the plan of a request, bound to this boot and box.

    The accepted idle processes are looked up now, as (pid, start in ticks).
    """
    boot = procstat.boot_time()
    accepted = []
    for pid, started in request["accept_holders"]:
        ticks = procstat.start_ticks(int(pid))
        # The boot time is computed from a clock that is adjusted, so it may differ by a second.
        if ticks is not None and abs(boot + ticks / procstat.CLOCK_TICKS - started) < 2.0:
            accepted.append([int(pid), ticks])
    return dict(
        request,
        id=os.urandom(8).hex(),
        identity=own_identity(),
        armed_at=round(at.wall, 3),
        armed_boot=at.boot,
        # The boot clock counts suspend and the monotonic clock does not: their difference is time
        # asleep.
        slept=at.boot - at.awake,
        accepted=accepted,
        devices=device_numbers(request["durable"]),
        key=dict(key) if key else None,
        kept_until=None,
        kept_until_boot=None,
    )


def device_numbers(folders: list[str]) -> dict[str, int]:
    """Return the device number of each directory; -1 if missing.

    After an unmount the path would be on the root disk, and the copy would not survive.
    """
    found = {}
    for folder in folders:
        try:
            found[folder] = os.stat(folder).st_dev
        except OSError:
            found[folder] = -1
    return found


def own_identity() -> dict[str, str]:
    """Return the platform's IDs of this box, ignoring our own environment variables."""
    return place.box_identity(own={})


def why_void(plan: Mapping[str, Any], at: ClockReading) -> str:
    """Return why a plan is not valid for this box and boot; "" if it is valid."""
    # First: after a reboot the boot clock restarts, so the times below would mean nothing.
    if plan.get("boot") != place.boot_id():
        return "the box was rebooted, or its container restarted, since it was armed"
    mine = own_identity()
    then = plan.get("identity") or {}
    # Only names that both have: a variable may be missing in another process's environment.
    other = sorted(name for name in set(mine) & set(then) if mine[name] != then[name])
    if other:
        return (
            f"this is not the box that was armed: {other[0]} is {mine[other[0]]}, and was "
            f"{then[other[0]]}"
        )
    slept = at.boot - at.awake - float(plan.get("slept") or 0.0)
    if abs(slept) >= SLEPT:
        return f"the machine was suspended for {slept:.0f} s, and resumed, since it was armed"
    return ""


def load_plans(folder: str) -> dict[str, JsonObject]:
    """Return mode → stored plan, void plans included; {} if nothing is armed."""
    found = {}
    raw = state_files.read_json(folder, FILE)
    for mode in MODES:
        plan = raw.get(mode)
        if isinstance(plan, dict) and _is_whole(plan, mode):
            found[mode] = plan
    return found


def _is_whole(plan: Mapping[str, Any], mode: str) -> bool:
    """Return whether a plan has the form that `bind_plan` made; a malformed file arms nothing."""
    try:
        # The file may be from another version of the agent, or half written.
        parse_request(dict(plan, accept_holders=[]))
        known = all(
            isinstance(plan[key], (int, float)) for key in ("armed_at", "armed_boot", "slept")
        )
        pairs = all(
            # type() instead of isinstance: true and false are ints as well.
            len(pair) == 2 and all(type(item) is int for item in pair)
            for pair in plan["accepted"]
        )
    except (WrongRequest, KeyError, TypeError):
        return False
    kept = [plan.get("kept_until_boot"), plan.get("kept_until")]
    return (
        known
        and pairs
        and plan["mode"] == mode
        and all(item is None or type(item) in (int, float) for item in kept)
    )


def save_plans(folder: str, plans: Mapping[str, Any]) -> None:
    """Store the armed plans.

    Raises:
        PlanNotStored: nothing can be written anywhere.
    """
    store_json(folder, FILE, dict(plans))


def store_json(folder: str, name: str, value: Mapping[str, Any]) -> None:
    """Write a small JSON file durably to disk, or to memory (tmpfs) if the disk is full.

    Raises:
        PlanNotStored: neither is writable.
    """
    data = jsonline.encode_line(dict(value))
    why = "there is nowhere to write"
    for where in _writable_folders(folder):
        try:
            ownership.ensure_private_folder(where)
            files.replace_file(os.path.join(where, name), data, sync=True)
            files.sync_path(where)
        except OSError as error:
            why = f"{where}: {error.strerror}"
            continue
        for other in state_files.state_folders(folder):
            # An older plan elsewhere would still be armed.
            if other != where:
                files.unlink_if_exists(os.path.join(other, name))
        return
    raise PlanNotStored(why)


def _writable_folders(folder: str) -> Iterator[str]:
    yield folder
    memory = state_files.memory_folder(folder, make=True)
    if memory is not None:
        yield memory


class PlanLock:
    """Context manager of the lock that guards changes to the plans.

    Raises:
        PlanNotStored: no lock file can be written, or another process kept the lock for `LOCK_WAIT`
            seconds.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock: files.FileLock | None = None

    def __enter__(self) -> PlanLock:
        for where in _writable_folders(self._folder):
            try:
                ownership.ensure_private_folder(where)
                held = files.FileLock(os.path.join(where, LOCK))
                if not held.acquire(LOCK_WAIT):
                    raise PlanNotStored("another rgt is changing what is armed")
            except OSError:
                continue
            self._lock = held
            return self
        raise PlanNotStored(f"cannot write to {self._folder} or to memory")

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()
