"""The ``autostop`` verb: arm, rehearse, postpone or disarm the box's stop, and print its status."""

from __future__ import annotations

import os
import signal
import sys
import time

from rgt_box import jsonline, options, place
from rgt_box.autostop import (
    armed_plan as plan,
)
from rgt_box.autostop import idle_clock, own_stop, saving, stop_process, story, watchman, work_signs
from rgt_box.recorder import control, state_files
from rgt_box.sampling.sampler import DEFAULT_PATTERN, BoxSampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

HELP = """
usage: autostop --rehearse < REQUEST     report whether it could be armed; changes nothing
       autostop --arm < REQUEST          arm it: a JSON line, see docs/autostop.md
       autostop --status                 print its status
       autostop --keep 2h                put a stop off by two hours from now (7200, 90m)
       autostop --disarm [--mode M]      disarm it: idle, lease, or both
       autostop --story [--lines N]      print what has happened, a JSON line each

A box that has been idle for long enough, or whose lease is over, is parked by its own recorder with its own key.
Nothing here can destroy anything.

Exit status: 0 done, 1 refused, 2 a wrong request or command line.

Example: autostop --keep 2h
"""
OK, REFUSED, USAGE = 0, 1, 2
SPEC = {
    "--rehearse": "flag",
    "--arm": "flag",
    "--status": "flag",
    "--disarm": "flag",
    "--keep": "str",
    "--mode": "str",
    "--story": "flag",
    "--lines": "int",
    "--carry-out": "str",
}
MOST_REQUEST = 1 << 20


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    found = options.parse_or_exit(argv, SPEC, HELP)
    chosen = [
        name
        for name in ("rehearse", "arm", "status", "disarm", "keep", "story", "carry-out")
        if found[name]
    ]
    if len(chosen) != 1 or found["mode"] not in (None, *plan.MODES):
        print(HELP.strip(), file=sys.stderr)
        return USAGE
    folder = place.state_dir()
    try:
        if chosen[0] in ("rehearse", "arm"):
            return arm_box(
                folder, sys.stdin.buffer.readline(MOST_REQUEST), rehearse=found["rehearse"]
            )
        if chosen[0] == "story":
            lines = 50
            for line in story.read_events(folder)[-(found["lines"] or lines) :]:
                jsonline.print_frame(line)
            return OK
        if chosen[0] == "carry-out":
            return stop_process.run_stop_attempt(folder, found["carry-out"])
        if chosen[0] == "keep":
            postpone_stops(folder, plan.parse_duration(found["keep"]))
        elif chosen[0] == "disarm":
            watchman.disarm_modes(
                folder, [found["mode"]] if found["mode"] else list(plan.MODES), "taken back"
            )
    except plan.WrongRequest as problem:
        print(f"autostop: {problem}", file=sys.stderr)
        return USAGE
    except plan.PlanNotStored as problem:
        print(f"autostop: {problem}", file=sys.stderr)
        return REFUSED
    jsonline.print_frame(build_status(folder))
    return OK


def arm_box(folder: str, line: bytes, rehearse: bool) -> int:
    """Arm the box with a request if no check objects; returns the exit status."""
    raw = jsonline.loads_dict(line)
    if raw is None:
        raise plan.WrongRequest("the request is not a JSON object")
    request = plan.parse_request(raw)
    at = idle_clock.read_clocks()
    reasons, key = list_objections(request)
    bound = plan.bind_plan(request, at, key)
    look = first_reading(folder, bound)
    reasons += look["reasons"]
    bound["cards"] = look["cards"]
    if not reasons and not rehearse:
        reasons += _store_plan(folder, bound)
    shown = dict(plan_status_row(folder, bound, look), armed=not reasons and not rehearse)
    jsonline.print_frame({"ok": not reasons, "reasons": reasons, "status": shown})
    if reasons:
        return REFUSED
    return OK


def _store_plan(folder: str, bound: JsonObject) -> list[str]:
    """Store the plan and ensure that a recorder runs; returns the reasons why that failed."""
    # Before the plan is stored: an armed plan that nothing watches would be a false promise.
    running = control.ensure_running(folder)
    if running is None:
        return [
            "no recorder can run on this box: %s"
            % (control.last_failure(folder) or "it does not start")
        ]
    if state_files.is_older(running):
        return ["the recorder of an older rgt is running on this box and does not end"]
    with plan.PlanLock(folder):
        plan.save_plans(folder, dict(plan.load_plans(folder), **{bound["mode"]: bound}))
    if bound["action"] == "park":
        words = "by its own key"
    else:
        words = "only asks"
    if bound["mode"] == "idle":
        limit = bound["idle_s"]
    else:
        limit = bound["lease_s"]
    control.ensure_running(folder)  # a recorder that exited just now, unused, has not read the plan
    story.append_event(
        folder, "armed", f"{bound['mode']}, {limit:.0f} s, {words}", mode=bound["mode"]
    )
    _wake_recorder(folder)
    return []


def _wake_recorder(folder: str) -> None:
    control.signal_recorder(folder, signal.SIGHUP)


def list_objections(request: JsonObject) -> tuple[list[str], JsonObject | None]:
    """Return why a request cannot be armed here, and the result of testing the box's own key."""
    reasons = []
    key: JsonObject | None = None
    if request["boot"] != place.boot_id():
        reasons.append("the box was rebooted since your review: review it again, then arm it")
    # Such a plan only warns, so the box needs no key.
    if request["action"] == "ask" and request["stop"] is None:
        return reasons, None
    try:
        proved, text = own_stop.prove_stop_right(
            own_stop.OwnStop(request["stop"], request["instance"])
        )
    except own_stop.NoStopKey as error:
        proved, text = False, str(error)
    key = {"proved": proved, "text": text, "at": round(idle_clock.read_clocks().wall, 3)}
    if request["action"] == "park":
        if not proved:
            reasons.append(f"not armed: {text}")
        if not request["durable"]:
            reasons.append("not armed: no directory that survives a stop was named")
    for where in request["durable"]:
        if not os.path.isdir(where) or not os.access(where, os.W_OK):
            reasons.append(f"{where} should survive a stop, but cannot be written to")
    return reasons, key


def first_reading(folder: str, bound: JsonObject) -> JsonObject:
    """Return a first reading of the box.

    Keys: ``holders``, ``saving``, ``unsaving``, ``why``, ``cards``, ``reasons``.
    """
    sampler = BoxSampler(folder, remember=False)
    pattern = bound["pattern"] or DEFAULT_PATTERN
    sampler.configure({"jobs": bound["jobs"], "pattern": pattern, "find": True, "mounts": []}, [])
    signs = work_signs.WorkSigns(bound, stop_process.FILES_WAIT)
    sample, _ = sampler.read(wait=3.0)
    # CPU shares need two readings; the first one is only their base.
    signs.read_signs(idle_clock.read_clocks(), sample, sampler)
    time.sleep(max(stop_process.LEAST_GAP, stop_process.GAP * story.wait_factor()))
    sample, _ = sampler.read(wait=3.0)
    found = signs.read_signs(idle_clock.read_clocks(), sample, sampler)
    holders = {(pid, ticks) for pid, ticks in bound["accepted"]}
    verdict = idle_clock.judge_reading(sample, found, holders)
    runs = saving.list_saving_runs(sample, found, bound)
    unsaving = [run.name for run in runs if not run.saves]
    accepted = bound["accept_unsaving"]
    refused = []
    if plan.ANY not in accepted:
        refused = [name for name in unsaving if name not in accepted]
    reasons = []
    if bound["mode"] == "lease" and bound["action"] == "park" and refused:
        reasons.append(f"not known to save on SIGTERM, and not accepted: {', '.join(refused)}")
    return {
        "holders": [
            {"pid": row["pid"], "started": row["started"], "cmd": row["cmd"], "bytes": row["bytes"]}
            for row in verdict.holders[: watchman.HOLDERS]
        ],
        "why": [*verdict.active, *verdict.unknown][: watchman.WHY],
        "unsaving": unsaving,
        "saving": [run.name for run in runs if run.saves],
        "cards": len(sample.get("gpus") or []),
        "reasons": reasons,
    }


def postpone_stops(folder: str, seconds: float) -> None:
    """Postpone every armed stop until `seconds` from now.

    Raises:
        plan.PlanNotStored: no directory is writable.
        plan.WrongRequest: nothing is armed.
    """
    at = idle_clock.read_clocks()
    with plan.PlanLock(folder):
        plans = plan.load_plans(folder)
        if not plans:
            raise plan.WrongRequest("nothing is armed on this box")
        for armed in plans.values():
            armed.update(kept_until=round(at.wall + seconds, 3), kept_until_boot=at.boot + seconds)
        plan.save_plans(folder, plans)
    story.append_event(folder, "kept", f"postponed by {seconds:.0f} s")
    _wake_recorder(folder)


def build_status(folder: str) -> JsonObject:
    """Return STATUS of the idle stop, with that of the lease under ``lease``."""
    plans = plan.load_plans(folder)
    rows = {mode: plan_status_row(folder, armed) for mode, armed in plans.items()}
    first = rows.get("idle") or dict(NOTHING, last=story.last_event(folder))
    return dict(first, lease=rows.get("lease"))


NOTHING: JsonObject = {
    "armed": False,
    "mode": None,
    "action": None,
    "state": "none",
    "boot": None,
    "instance": None,
    "box": None,
    "since": None,
    "limit_s": None,
    "idle_s": None,
    "unknown_s": 0.0,
    "stops_in_s": None,
    "kept_until": None,
    "why": [],
    "holders": [],
    "unsaving": [],
    "saving": [],
    "no_progress": [],
    "key": None,
    "last": None,
}


def plan_status_row(folder: str, armed: JsonObject, look: JsonObject | None = None) -> JsonObject:
    """Return the STATUS of one plan, from the recorder's state file or from `look` if given."""
    at = idle_clock.read_clocks()
    mode = armed["mode"]
    row = dict(
        NOTHING,
        armed=True,
        mode=mode,
        action=armed["action"],
        boot=armed["boot"],
        instance=armed["instance"],
        box=armed["box"],
        since=armed["armed_at"],
        limit_s=armed["idle_s"] if mode == "idle" else armed["lease_s"],
        kept_until=armed["kept_until"],
        key=armed["key"],
        last=story.last_event(folder),
    )
    if look is not None:
        row.update(
            {key: look[key] for key in ("why", "holders", "unsaving", "saving")}, state="armed"
        )
        return row
    void = plan.why_void(armed, at)
    if void:
        return dict(row, armed=False, state="disarmed", why=[void])
    state = recorder_state(folder)
    said = (state.get("modes") or {}).get(mode)
    if not control.is_running(folder) or (state and said is None):
        return dict(
            row,
            why=["armed, but no recorder runs, so this box will not stop itself"],
        )
    if said is None:
        return dict(row, state="armed", why=["the recorder has not looked yet"])
    row.update(
        {key: said[key] for key in ("state", "limit_s", "stops_in_s", "unknown_s", "idle_s")}
    )
    since = state.get("idle_since")
    # The recorder rewrites an unchanged state only now and then, so its times have aged.
    passed = at.boot - float(state.get("at_boot") or at.boot)
    blind = state.get("unknown_since")
    if isinstance(blind, (int, float)):
        row["unknown_s"] = round(max(0.0, at.boot - blind), 1)
    if isinstance(since, (int, float)):
        row["idle_s"] = round(max(0.0, at.boot - since), 1)
    if isinstance(row["stops_in_s"], (int, float)):
        row["stops_in_s"] = round(max(0.0, row["stops_in_s"] - passed), 1)
    lists = ("why", "holders", "unsaving", "saving", "no_progress")
    row.update({key: state.get(key) or [] for key in lists})
    return row


def recorder_state(folder: str) -> JsonObject:
    """Return the state written by the running recorder; {} if none."""
    return state_files.read_status(folder, watchman.STATE) or {}
