"""The recorder's part of autostop: checks, counts down, warns, and starts the stop process.

The recorder never makes the stop itself, so sampling continues. It keeps running when the laptop
disconnects. A recorder that takes over continues with the armed plans; their idle time starts from
zero.
"""

from __future__ import annotations

import os

from rgt_wire import duration_text

from rgt_box import files, place
from rgt_box.autostop import armed_plan as plan
from rgt_box.autostop import idle_clock, progress_watch, sink, story
from rgt_box.background import Background, error_text
from rgt_box.recorder import control, state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_wire import JsonObject

    from rgt_box.autostop.idle_clock import ClockReading, IdleVerdict
    from rgt_box.autostop.saving import SavingRun
    from rgt_box.autostop.work_signs import WorkSigns
    from rgt_box.sampling.sampler import BoxSampler

STATE = state_files.STOP_STATE
LOOK_EVERY = 10.0
"""Seconds between two scans of all processes."""
SLOWEST = 10.0
"""Maximum seconds between two samples while something is armed."""
RUNS_WAIT, RUNS_HANG = 0.5, 15.0
"""Seconds to wait for the runs' files, and after which they count as hung; their previous values
are kept then."""
WHY, HOLDERS = 8, 16

RELAYED = {
    "warned": ("autostop-warned", "warn"),
    "asked": ("autostop-warned", "warn"),
    "kept": ("autostop-kept", "info"),
    "withdrawn": ("autostop-kept", "info"),
    "sealed": ("autostop-stopping", "warn"),
    "mirrored": ("autostop-stopping", "info"),
    "intent": ("autostop-stopping", "warn"),
    "answered": ("autostop-stopping", "info"),
    "refused": ("autostop-failed", "error"),
    "failed": ("autostop-failed", "error"),
    "unknown": ("autostop-unknown", "warn"),
    "disarmed": ("autostop-disarmed", "warn"),
    "stopped-lease": ("autostop-stopping", "warn"),
    "terminated": ("autostop-stopping", "info"),
}
"""Log event → kind and level of the event in the recorder's history."""
FIELDS = {"idle": "autostop", "lease": "lease"}
"""Mode → field of a sample."""
OF_QUEUES = ("queue-done", "cell-failed")
TO_SINK = {"warned", "asked", "sealed", "refused", "failed"}


class AutostopMonitor:
    """Watches over the armed plans.

    Args:
        folder: The state directory.
        event: Adds an event to the recorder's history: kind, text, level.
    """

    def __init__(self, folder: str, event: Callable[[str, str, str], None]) -> None:
        self._folder = folder
        self._event = event
        self._sink = sink.EventSender(folder)
        self._tail = story.EventTail(folder)
        self._mark: Any = None
        self._plans: dict[str, JsonObject] = {}
        self._signs: WorkSigns | None = None
        self._clock = idle_clock.IdleClock(LOOK_EVERY)
        self._progress: progress_watch.ProgressWatch | None = None
        self._every = LOOK_EVERY
        self._verdict: IdleVerdict = idle_clock.IdleVerdict()
        self._counts: dict[str, idle_clock.Countdown] = {}
        self._states: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        """Mode → consecutive failed stops."""
        self._told: set[str] = set()
        self._stops: dict[str, float | None] = {}
        self._looked = self._said = self._started = float("-inf")
        self._interval = 0.0
        """Seconds between two samples."""
        self._saved: Any = None
        self._unsaving: list[str] = []
        self._asked: Any = None
        self._runs = Background(self._runs_now, 0.0, RUNS_HANG)
        self._savers: list[str] = []
        self._trouble = ""
        self._reload_plans()

    @property
    def has_plans(self) -> bool:
        """Whether any plan is armed."""
        return bool(self._plans)

    def extend_config(self, config: JsonObject) -> JsonObject:
        """Return the recorder's configuration extended by what the armed plans need to observe."""
        self._reload_plans()
        if not self._plans:
            return config
        limits = [armed[mode + "_s"] for mode, armed in self._plans.items()]
        # Eight samples fit into the shortest limit, so that a limit of seconds (tests) works as
        # well.
        interval = max(control.MIN_INTERVAL, min(SLOWEST, min(limits) / 8.0))
        self._interval = min(float(config.get("interval") or 1.0), interval)
        wide = dict(config, find=True, interval=self._interval)
        for key in ("jobs", "mounts"):
            own = [path for armed in self._plans.values() for path in armed[key]]
            # dict.fromkeys removes duplicates and keeps the order.
            wide[key] = list(dict.fromkeys([*(config.get(key) or []), *own]))
        patterns = [armed["pattern"] for armed in self._plans.values() if armed["pattern"]]
        wide["pattern"] = config.get("pattern") or (patterns[0] if patterns else None)
        return wide

    def forward_to_sink(self, kind: str, text: str) -> None:
        """Send a recorder event to the user's sink, if it is one of `OF_QUEUES`."""
        if kind in OF_QUEUES:
            self._sink.send(kind, text)

    def tick(self, sample: JsonObject, sampler: BoxSampler) -> JsonObject:
        """Run one step; returns the sample's ``autostop`` and ``lease`` fields. Never raises."""
        try:
            self._sink.send_disk_full(sample.get("disks") or [])
            return self._advance(sample, sampler)
        except Exception as error:  # an error here must not cost the sample or the recorder
            text = f"autostop: {error_text(error)}"
            if text != self._trouble:
                self._trouble = text
                self._event("autostop-unknown", text, "error")
            self._clock.restart_clock()
            return {}

    def _advance(self, sample: JsonObject, sampler: BoxSampler) -> JsonObject:
        self._relay_events()
        self._reload_plans()
        if not self._plans:
            return {}
        at = idle_clock.read_clocks()
        # The sample may arrive slightly early; waiting for the next one could double the interval.
        if at.boot - self._looked >= self._every - self._interval / 4.0:
            self._looked = at.boot
            self._disarm_void(at)
            if not self._plans:
                self._relay_events()
                return {}
            self._judge_sample(at, sample, sampler)
        else:
            self._check_gpu_load(at, sample)
        for mode in list(self._plans):
            self._advance_countdown(mode, at)
        self._relay_events()
        self._save_status(at)
        return {FIELDS[mode]: self._status_row(mode, at) for mode in self._plans}

    def _disarm_void(self, at: ClockReading) -> None:
        """Disarm plans that are void on this box or boot, and report it."""
        for mode in list(self._plans):
            why = plan.why_void(self._plans[mode], at)
            if why:
                disarm_modes(self._folder, [mode], f"{why}; it is no longer armed")
                self._reload_plans()

    def _reload_plans(self) -> None:
        """Reload the plans if their file changed."""
        mark = [
            files.signature(os.path.join(where, plan.FILE))
            for where in state_files.state_folders(self._folder)
        ]
        # With every sample only the files' marks are compared.
        if mark == self._mark:
            return
        self._mark = mark
        before = self._plans
        self._plans = plan.load_plans(self._folder)
        for mode in plan.MODES:
            old = before.get(mode)
            new = self._plans.get(mode)
            if new is None:
                self._counts.pop(mode, None)
                self._states.pop(mode, None)
            elif old is None or old["id"] != new["id"]:
                self._counts[mode] = idle_clock.Countdown()
                self._states[mode] = "armed"
                self._failures[mode] = 0
                self._told -= {mode}
                self._begin_readings()
            elif (
                # Postponing is an answer to the failure: the countdown starts over.
                old.get("kept_until_boot") != new.get("kept_until_boot")
                and self._states.get(mode) == "failed"
            ):
                self._states[mode] = "armed"
        if not self._plans:
            self._signs = None
            state_files.unlink_everywhere(self._folder, STATE)

    def _begin_readings(self) -> None:
        """Start new readings that cover all armed plans."""
        from rgt_box.autostop.work_signs import (
            WorkSigns,
        )  # imported here: only needed when armed

        both = {
            key: [path for armed in self._plans.values() for path in armed[key]]
            for key in ("jobs", "results")
        }
        self._signs = WorkSigns(both)
        limits = [armed[mode + "_s"] for mode, armed in self._plans.items()]
        # Also at the pace of tests no more often: a scan reads all processes.
        least = 0.25
        scan_s = max(least, LOOK_EVERY * story.wait_factor())
        self._every = min([scan_s] + [limit / 4.0 for limit in limits])
        self._clock = idle_clock.IdleClock(max(self._every, SLOWEST))
        self._progress = None
        limit_s = (self._plans.get("idle") or {}).get("no_progress_s")
        if limit_s:
            self._progress = progress_watch.ProgressWatch(
                max(self._every, SLOWEST), limit_s, RUNS_WAIT
            )
        # The first reading takes place at once.
        self._looked = float("-inf")

    def _judge_sample(self, at: ClockReading, sample: JsonObject, sampler: BoxSampler) -> None:
        assert self._signs is not None
        signs = self._signs.read_signs(at, sample, sampler)
        signs["cards"] = max(int(armed.get("cards") or 0) for armed in self._plans.values())
        accepted = {
            (pid, ticks) for armed in self._plans.values() for pid, ticks in armed["accepted"]
        }
        if self._progress is None:
            self._verdict = idle_clock.judge_reading(sample, signs, accepted)
        else:
            self._verdict = self._progress.judge_reading(at, sample, signs, accepted)
        self._clock.feed(at, self._verdict)
        if "idle" in self._plans:
            # Seconds of idleness that clear an earlier unknown state.
            known_after = 600.0
            self._clock.clear_unknown_after(
                at, min(known_after, self._plans["idle"]["idle_s"] / 2.0)
            )
        if "lease" in self._plans:
            self._asked = sample, signs, self._plans["lease"]
            runs, error = self._runs.poll(RUNS_WAIT)
            # A hanging disk keeps the previous list; any other error makes the reading fail.
            if error is not None and not self._runs.is_hanging:
                raise ValueError(error)
            if runs is not None:
                self._savers = [run.name for run in runs if run.saves]
                self._unsaving = [run.name for run in runs if not run.saves]
        self._trouble = ""

    def _runs_now(self) -> list[SavingRun]:
        from rgt_box.autostop import saving  # imported here: only needed when armed

        return saving.list_saving_runs(*self._asked)

    def _check_gpu_load(self, at: ClockReading, sample: JsonObject) -> None:
        """Check GPU load between two scans: a card that was busy for a second has worked."""
        cards = [dict(card) for card in sample.get("gpus") or []]
        busy = [
            card
            for card in cards
            if (card.get("util") or 0.0) >= idle_clock.GPU_PCT and not card.get("error")
        ]
        if busy and not self._verdict.active:
            words = tuple(f"GPU {card.get('index')} is busy: {card['util']:.0f}%" for card in busy)
            self._verdict = self._verdict._replace(active=words)
            self._clock.feed(at, self._verdict)
            if self._progress is not None:
                self._progress.restart_count(at, self._verdict)

    def _advance_countdown(self, mode: str, at: ClockReading) -> None:
        """Advance the countdown of one armed stop."""
        if self._is_stopping(mode, at):
            return
        armed = self._plans[mode]
        count = self._counts[mode]
        if mode == "lease" and self._states.get(mode) == "failed" and self._unaccepted_runs():
            self._stops[mode] = None  # already reported; the lease does not end these runs
            return
        due = self._due_time(mode)
        if mode == "idle":
            limit = idle_clock.idle_limit(armed, self._inspected)
        else:
            limit = armed["lease_s"]
        step = count.next_action(at.boot, due, min(armed["warn_s"], limit))
        self._stops[mode] = step.stops_in
        if mode == "idle":
            self._report_unknown(at)
        if step.action == "withdraw":
            self._states[mode] = "armed"
            if mode == "idle" and due is None:
                why = "; ".join(self._verdict.active[:2])
            else:
                why = "it was put off"
            story.append_event(
                self._folder,
                "withdrawn",
                "not stopped: %s" % (why or "it is no longer idle"),
                mode=mode,
            )
        elif step.action == "warn":
            self._states[mode] = "warned"
            text = story.warning_text(
                armed, mode, step.stops_in or 0.0, self._unsaving, self._stall_evidence
            )
            story.append_event(self._folder, "warned", text, mode=mode)
            story.write_to_terminals(text)
        elif step.action == "stop":
            self._stop_or_ask(mode, at)

    @property
    def _inspected(self) -> bool:
        return bool(self._signs is not None and self._signs.failed)

    def _due_time(self, mode: str) -> float | None:
        if mode == "lease":
            return idle_clock.due_by_lease(self._plans[mode])
        return idle_clock.due_when_idle(self._plans[mode], self._clock.idle_since, self._inspected)

    def _report_unknown(self, at: ClockReading) -> None:
        """Report once if idleness is unknown for longer than the limit: no stop will happen."""
        late = self._clock.unknown_s(at) >= self._plans["idle"]["idle_s"]
        if late and "idle" not in self._told:
            self._told.add("idle")
            what = "; ".join(self._verdict.unknown[:3]) or "readings are intermittent"
            text = f"unknown whether this box is idle, so it will not stop itself: {what}"
            story.append_event(self._folder, "unknown", text, mode="idle")
        elif not late:
            self._told.discard("idle")

    def _stop_or_ask(self, mode: str, at: ClockReading) -> None:
        armed = self._plans[mode]
        if armed["action"] == "ask":
            # Asked once; the countdown stays at its end.
            if self._states.get(mode) != "asked":
                self._states[mode] = "asked"
                what = "The lease is over"
                if mode == "idle":
                    what = f"Idle for {duration_text(armed['idle_s'])}"
                story.append_event(
                    self._folder,
                    "asked",
                    f"{what}. This box cannot stop itself: stop it",
                    mode=mode,
                )
            return
        self._begin_stop(mode, at)

    def _is_stopping(self, mode: str, at: ClockReading) -> bool:
        """Return whether a stop is running; if one ended without a stop, apply its result."""
        if story.is_at_work(self._folder):
            mine = story.mode_at_work(self._folder) == mode
            if mine:
                self._states[mode] = "stopping"
            else:
                self._states[mode] = self._states.get(mode, "armed")
            return True
        journal = story.read_journal(self._folder)
        if journal.get("id") == self._plans[mode]["id"]:
            # The journal of another plan says nothing about this one.
            phase = journal.get("phase")
        else:
            phase = None
        # The process has just been started and has not taken its lock yet.
        if at.boot - self._started < story.start_within() and phase not in story.FINISHED:
            return self._states.get(mode) == "stopping"
        if phase in story.ASKED:
            # It was killed after the intent: a new process asks for the state and does not resend.
            self._begin_stop(mode, at)
            return True
        if phase is None and self._states.get(mode) != "stopping":
            return False
        if phase not in story.FINISHED:
            text = "the stop was not carried out: its process was killed, or could not be started"
            story.append_event(self._folder, "failed", text, mode=mode)
        failed = phase != story.WITHDRAWN
        if failed:
            self._states[mode] = "failed"
        else:
            self._states[mode] = "armed"
        if failed:
            self._failures[mode] = self._failures.get(mode, 0) + 1
        else:
            self._failures[mode] = 0
        self._counts[mode] = idle_clock.Countdown()
        if mode == "idle":
            self._clock.restart_clock()
        if failed or mode == "lease":
            wait = idle_clock.retry_after(self._failures[mode])
            self._counts[mode].not_before = at.boot + wait * story.wait_factor()
        story.forget_journal(self._folder)
        return False

    def _begin_stop(self, mode: str, at: ClockReading) -> None:
        self._states[mode] = "stopping"
        self._started = at.boot
        # Detached: a recorder that is replaced meanwhile must not end a stop halfway.
        control.start_detached(place.agent_command("autostop", "--carry-out", mode))

    def _relay_events(self) -> None:
        for line in self._tail.new_events():
            kind, level = RELAYED.get(str(line.get("event")), ("", ""))
            if kind:
                self._event(kind, str(line.get("text")), level)
            # Kept, mirrored and answered need no reaction of a person, so they are not sent.
            if line.get("event") in TO_SINK:
                self._sink.send(kind, str(line.get("text")))

    def _shown_state(self, mode: str) -> str:
        state = self._states.get(mode, "armed")
        if state == "asked":
            return "warned"
        return state

    @property
    def _stall_evidence(self) -> tuple[str, ...]:
        if self._progress is None:
            return ()
        return self._progress.evidence

    def _why_not_idle(self) -> list[str]:
        held = [
            "%s, pid %d, is idle and uses memory" % (row["name"], row["pid"])
            for row in self._verdict.holders
        ]
        return [*self._verdict.active, *self._verdict.unknown, *held]

    def _status_row(self, mode: str, at: ClockReading) -> JsonObject:
        armed = self._plans[mode]
        idle = self._clock.idle_s(at)
        stops = self._stops.get(mode)
        row: JsonObject = {
            "mode": mode,
            "action": armed["action"],
            "state": self._shown_state(mode),
            "idle_s": None if idle is None else round(idle, 1),
            "unknown_s": round(self._clock.unknown_s(at), 1),
            "limit_s": idle_clock.idle_limit(armed, self._inspected)
            if mode == "idle"
            else armed["lease_s"],
            "stops_in_s": None if stops is None else round(stops, 1),
            "kept_until": armed.get("kept_until"),
            "why": [text[:300] for text in self._why_not_idle()[:3]],
        }
        if mode == "idle" and self._stall_evidence:
            row["no_progress"] = [text[:300] for text in self._stall_evidence[:3]]
        if mode == "lease":
            return dict(row, unsaving=self._unaccepted_runs()[:HOLDERS])
        return row

    def _unaccepted_runs(self) -> list[str]:
        """Return runs that do not save on SIGTERM and were not accepted; the lease keeps them."""
        accepted = self._plans["lease"]["accept_unsaving"]
        if plan.ANY in accepted:
            return []
        return [name for name in self._unsaving if name not in accepted]

    def _save_status(self, at: ClockReading) -> None:
        """Write the state file for ``autostop --status``."""
        now = {
            mode: (
                self._shown_state(mode),
                self._clock.idle_since,
                tuple(self._why_not_idle()[:WHY]),
                bool(self._stall_evidence),
            )
            for mode in self._plans
        }
        # Seconds between two writes of the state file if only the time has changed.
        say_every = 30.0
        # An idle box should not write to its disk with every sample.
        if now == self._saved and at.boot - self._said < say_every:
            return
        self._saved = now
        self._said = at.boot
        holders = [
            {"pid": row["pid"], "started": row["started"], "cmd": row["cmd"], "bytes": row["bytes"]}
            for row in self._verdict.holders[:HOLDERS]
        ]
        state: JsonObject = dict(state_files.describe_self(), at_boot=at.boot)
        state.update(
            idle_since=self._clock.idle_since,
            unknown_since=self._clock.unknown_since,
            why=self._why_not_idle()[:WHY],
            holders=holders,
            no_progress=self._stall_evidence[:WHY],
            progress=None if self._progress is None else self._progress.dump_state(),
            unsaving=self._unsaving,
            saving=self._savers,
            modes={mode: self._status_row(mode, at) for mode in self._plans},
        )
        state_files.write_json(self._folder, STATE, state)


def disarm_modes(folder: str, modes: list[str], why: str) -> list[str]:
    """Disarm modes; returns those that were armed.

    Raises:
        plan.PlanNotStored: no directory is writable.
    """
    with plan.PlanLock(folder):
        plans = plan.load_plans(folder)
        gone = [mode for mode in modes if mode in plans]
        if gone:
            plan.save_plans(
                folder, {mode: armed for mode, armed in plans.items() if mode not in gone}
            )
    for mode in gone:
        story.append_event(folder, "disarmed", f"{mode}: {why}", mode=mode)
    return gone
