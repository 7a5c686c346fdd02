"""Performs a stop in a separate process: seal, save results, check again, record the intent, park.

A lease stop first proves that the key may stop the box: runs are ended only if billing can end too.

Any work or unknown sign in the last check withdraws the stop. The journal is on disk before the
call is sent. A process that finds an intent without a result asks for the state, and never resends
on a guess.
"""

from __future__ import annotations

import os
import signal
import time

from rgt_box import files, ownership, place, procstat
from rgt_box.autostop import (
    armed_plan as plan,
)
from rgt_box.autostop import (
    idle_clock,
    own_stop,
    progress_watch,
    result_copies,
    saving,
    story,
    work_signs,
)
from rgt_box.autostop.story import (
    ANSWERED,
    ASKED,
    BEGUN,
    FAILED,
    INTENT,
    JOURNAL,
    LOCK,
    OFF,
    SAVED,
    SEALED,
    UNFINISHED,
    WITHDRAWN,
    read_journal,
    wait_factor,
)
from rgt_box.background import error_text
from rgt_box.commands import seal
from rgt_box.recorder import state_files
from rgt_box.sampling import quiet_signs
from rgt_box.sampling.sampler import DEFAULT_PATTERN, BoxSampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

    from rgt_box.autostop.own_stop import OwnStop

PAUSES = (0.0, 60.0, 300.0)
"""Seconds before each attempt."""
SETTLE, ASK_EVERY = 600.0, 10.0
"""Seconds for the platform to carry out an accepted stop, and between two state requests. A pod may
be reported as running for a while after a stop was accepted
(https://docs.runpod.io/api-reference-v2/overview)."""
FILES_WAIT = 60.0
"""Seconds to wait for the disks of jobs and results; nothing else waits here."""
GAP, LEAST_GAP = 3.0, 0.3
"""Seconds between the two readings of a check, over which CPU time must not grow."""
SAVE_LEAST, SAVE_QUIET, SAVE_MOST = 150.0, 60.0, 900.0
"""Seconds for runs to exit after SIGTERM: the minimum, the time without file changes after which
waiting ends, and the maximum."""


class Withdrawn(Exception):
    """The stop is no longer wanted or not safe; the message says why."""


class StopFailed(Exception):
    """The stop could not be made; the message says why."""


def run_stop_attempt(folder: str, mode: str) -> int:
    """Perform an armed stop; returns the exit status.

    0: done. 1: not done, and reported. 3: another stop process is running.
    """
    held = _acquire_stop_lock(folder)
    if held is None:
        return 3
    # The recorder reads the mode from the lock to show the right countdown as stopping.
    pid = os.getpid()
    held.write_owner({"pid": pid, "ticks": procstat.start_ticks(pid), "mode": mode})
    # The recorder blocks these signals, and child processes inherit the mask.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    armed = plan.load_plans(folder).get(mode)
    # It may have been disarmed since the recorder started this process.
    if armed is None or armed["action"] != "park":
        held.release()
        return 1
    nice = 10
    # The last check reads all processes twice; it must not disturb what it measures.
    os.nice(nice)
    stop = StopAttempt(folder, armed)
    try:
        stop.run_steps()
        return 0
    except Withdrawn as why:
        # Withdrawn is no failure: something works, which is what the check is for.
        stop.end_without_stop(WITHDRAWN, "withdrawn", f"not stopped: {why}")
    except StopFailed as why:
        stop.end_without_stop(FAILED, "failed", str(why))
    except Exception as error:  # on any error the user must be notified that billing continues
        stop.end_without_stop(
            FAILED, "failed", f"the stop could not be carried out: {error_text(error)}"
        )
    finally:
        # Also after an error: a seal that stays would keep every queue from starting cells.
        stop.open_seal()
        held.release()
    return 1


def _acquire_stop_lock(folder: str) -> files.FileLock | None:
    for where in [folder, state_files.memory_folder(folder, make=True)]:
        if where is None:
            continue
        try:
            ownership.ensure_private_folder(where)
            # A full disk must not prevent a stop, so the lock may live in memory instead.
            held = files.FileLock(os.path.join(where, LOCK))
            if held.acquire():
                return held
            return None
        except OSError:
            continue
    return None


class StopAttempt:
    """One attempt to stop the box.

    Args:
        folder: The state directory.
        armed: The armed plan.
    """

    def __init__(self, folder: str, armed: JsonObject) -> None:
        self._folder = folder
        self._armed = armed
        self._mode = str(armed["mode"])
        self._began = time.time()
        self._locks: list[files.FileLock] = []
        self._newest: int | None = None
        before = read_journal(folder)
        mine = before.get("id") == armed["id"] and before.get("phase") in UNFINISHED
        # A call sent for an earlier plan or the other mode may still be open, like one of our own.
        # Another boot means that a call of then was carried out, or that a person restarted the
        # box.
        asked = before.get("phase") in ASKED and before.get("boot") == place.boot_id()
        if mine or asked:
            self._journal = before
        else:
            self._journal = {}
        self._tries = 0
        self._progress: progress_watch.ProgressWatch | None = None
        state = state_files.read_status(folder, state_files.STOP_STATE) or {}
        if self._mode == "idle" and armed.get("no_progress_s") and state.get("progress"):
            # Attempts are minutes apart, so only a clock change interrupts the count, not a gap.
            self._progress = progress_watch.ProgressWatch(
                float("inf"), armed["no_progress_s"], FILES_WAIT, state["progress"]
            )

    def run_steps(self) -> None:
        """Run all steps.

        Raises:
            Withdrawn, StopFailed: the box was not stopped.
        """
        why = plan.why_void(self._armed, idle_clock.read_clocks())
        if why:
            raise Withdrawn(why)
        try:
            own = own_stop.OwnStop(self._armed["stop"] or {"kind": ""}, self._armed["instance"])
        except (own_stop.NoStopKey, KeyError) as error:
            raise StopFailed(str(error)) from None
        # The call was sent, or may have been: only the platform knows, so ask it instead of sending
        # again.
        if self._journal.get("phase") in ASKED:
            self._log_event(
                "answered",
                "the process that requested the stop was killed: reading the outcome from the "
                "platform",
            )
            if self._wait_until_off(own):
                return
            raise Withdrawn("the stop was not carried out, and the box still runs")
        self._write_journal(BEGUN)
        if self._mode == "lease":
            # Before the runs end: a lease that ends the training but not the billing is the worst
            # case.
            self._prove_right(own)
        self._acquire_seal()
        if self._mode == "lease":
            self._end_runs()
        self._check_last_time()
        self._write_journal(SEALED)
        self._log_event("sealed", "the box is sealed: no cell starts any more")
        self._save_results()
        self._write_journal(SAVED)
        while self._tries < len(PAUSES):
            time.sleep(PAUSES[self._tries] * wait_factor())
            if self._try_stop(own):
                return
        raise StopFailed(
            "tried %d times, and this box is still running: stop it by hand" % self._tries
        )

    def _prove_right(self, own: OwnStop) -> None:
        """Check that the box can be stopped, before ending its runs.

        Raises:
            StopFailed: the key may not stop the box, or that is unproven; no run was ended.
        """
        text = ""
        for pause in PAUSES:
            time.sleep(pause * wait_factor())
            self._require_still_armed()
            proved, text = own_stop.prove_stop_right(own)
            if proved:
                return
        raise StopFailed(
            f"the lease is over, but no run was stopped, because this box cannot be stopped: {text}"
        )

    def _try_stop(self, own: OwnStop) -> bool:
        """Send the stop once; returns whether the box is off."""
        self._check_last_time()
        self._require_still_armed()
        self._tries += 1
        try:
            # A call without a record could be sent twice by the next process.
            self._write_journal(INTENT, strict=True)
        except plan.PlanNotStored as error:
            raise StopFailed(
                f"not stopped, because the intent cannot be recorded: {error}"
            ) from None
        self._log_event(
            "intent",
            "asking the platform to park %s (try %d)" % (self._armed["instance"], self._tries),
        )
        story.copy_event_log(self._folder, self._armed["durable"])
        # The last copy of the log: after this call the box may be gone at any instant.
        answer = own.send_stop()
        self._write_journal(ANSWERED, proves=answer.proves, text=answer.text)
        # Only a refusal that proves that nothing was done allows another try.
        if answer.proves == own_stop.NOTHING:
            self._log_event("refused", f"the stop was refused, and nothing was done: {answer.text}")
            self._write_journal(SAVED)
            return False
        self._log_event("answered", answer.text)
        return self._wait_until_off(own)

    def _wait_until_off(self, own: OwnStop) -> bool:
        """Poll the state until the box is off; returns False if it is still running after `SETTLE`.

        Raises:
            StopFailed: the state is unknown, so the stop is not sent again.
        """
        deadline = time.monotonic() + SETTLE * wait_factor()
        while True:
            seen = own.query_state()
            if seen.state == "off":
                self._write_journal(OFF)
                self._log_event("answered", f"off: {seen.text}")
                story.copy_event_log(self._folder, self._armed["durable"])
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(max(0.05, ASK_EVERY * wait_factor()))
        if seen.state == "on":
            self._log_event(
                "refused", f"the stop was requested, but the box is still running: {seen.text}"
            )
            self._write_journal(SAVED)
            return False
        raise StopFailed(f"the outcome of the stop is unknown; it is not sent again: {seen.text}")

    def _write_journal(self, phase: str, strict: bool = False, **more: Any) -> None:
        """Write the journal.

        Raises:
            plan.PlanNotStored: with `strict`, if it cannot be written anywhere.
        """
        self._journal = dict(
            more, id=self._armed["id"], mode=self._mode, phase=phase, tries=self._tries
        )
        self._journal.update(boot=place.boot_id(), at=round(time.time(), 3))
        try:
            plan.store_json(self._folder, JOURNAL, self._journal)
        except plan.PlanNotStored:
            if strict:
                raise

    def _log_event(self, event: str, text: str) -> None:
        story.append_event(self._folder, event, text, mode=self._mode)

    def end_without_stop(self, phase: str, event: str, text: str) -> None:
        """Record that the stop ended without stopping the box."""
        self._log_event(event, text)
        self._write_journal(phase, text=text)
        story.copy_event_log(self._folder, self._armed["durable"])

    def open_seal(self) -> None:
        """Release the seal, so that queues start cells again."""
        for lock in reversed(self._locks):
            # Cleared before the release: a reader of the lock must not see a seal that has ended.
            lock.write_owner({})
            lock.release()
        self._locks = []

    def _acquire_seal(self) -> None:
        own = files.FileLock(os.path.join(self._folder, seal.LOCK))
        try:
            if not own.acquire():
                raise Withdrawn(seal.sealed_text(files.lock_holder(own.path)))
        except OSError as error:
            raise StopFailed(f"cannot be sealed: {error_text(error)}") from None
        own.write_owner(
            {
                "seal": True,
                "pid": os.getpid(),
                "ticks": procstat.start_ticks(os.getpid()),
                # A reader takes a seal for stale after this time, even if this process hangs.
                "until": time.time() + seal.MOST_SECONDS,
            }
        )
        self._locks.append(own)
        # A lease ends running cells, whose runners still hold these locks.
        if self._mode != "lease":
            self._acquire_queues()

    def _acquire_queues(self) -> None:
        try:
            locks, busy = seal.acquire_queues(self._armed["jobs"])
        except OSError as error:
            raise StopFailed(f"cannot be sealed: {error_text(error)}") from None
        self._locks += locks
        if self._progress is not None:
            # The last check judges these runners again.
            live = progress_watch.list_runners(self._armed["jobs"])
            busy = [text for text in busy if text not in [row["text"] for row in live]]
        if busy:
            raise Withdrawn("; ".join(busy[:3]))

    def _require_still_armed(self) -> None:
        """Raise `Withdrawn` if the plan was disarmed, postponed or became void meanwhile."""
        # Reread: the user may have disarmed or postponed it while results were copied.
        now = plan.load_plans(self._folder).get(self._mode)
        if now is None or now["id"] != self._armed["id"]:
            raise Withdrawn("it is no longer armed")
        why = plan.why_void(self._armed, idle_clock.read_clocks())
        if why:
            raise Withdrawn(why)
        if float(now.get("kept_until_boot") or 0.0) > idle_clock.read_clocks().boot:
            raise Withdrawn("it was put off")

    def _take_fresh_sample(self) -> tuple[JsonObject, JsonObject, BoxSampler]:
        """Return a fresh sample, the signs over a few seconds, and the sampler.

        Each card's utilisation is the maximum of both readings.
        """
        # remember=False: the recorder keeps the found runs; two writers would overwrite each other.
        sampler = BoxSampler(self._folder, remember=False)
        pattern = self._armed["pattern"] or DEFAULT_PATTERN
        sampler.configure(
            {"jobs": self._armed["jobs"], "pattern": pattern, "find": True, "mounts": []}, []
        )
        if self._mode == "idle":
            plan = self._armed
        else:
            # A lease ends runs whose results change all the time, so they are no sign against it.
            plan = dict(self._armed, jobs=[])
        signs = work_signs.WorkSigns(plan, FILES_WAIT)
        sample, _ = sampler.read(wait=seal.LOOK)
        signs.read_signs(idle_clock.read_clocks(), sample, sampler)
        # A single reading may hit the pause between two steps.
        before = {card.get("index"): card.get("util") for card in sample.get("gpus") or []}
        time.sleep(max(LEAST_GAP, GAP * wait_factor()))
        sample, _ = sampler.read(wait=seal.LOOK)
        for card in sample.get("gpus") or []:
            card["util"] = larger_reading(card.get("util"), before.get(card.get("index")))
        sample["transfers"], sample["input_at"] = quiet_signs.transfers(), quiet_signs.input_at()
        found = signs.read_signs(idle_clock.read_clocks(), sample, sampler)
        found["cards"] = self._armed.get("cards") or 0
        return sample, found, sampler

    def _check_last_time(self) -> None:
        """Check that the box is idle or, for a lease, that no unaccepted run is left.

        Raises:
            Withdrawn: names what works or is unknown.
        """
        self._require_still_armed()
        sample, signs, sampler = self._take_fresh_sample()
        if self._mode == "lease":
            left = [
                run.name
                for run in saving.list_saving_runs(sample, signs, self._armed)
                if not self._accepts_unsaving(run.name)
            ]
            blind = sorted(sampler.failing & {"procs", "gpus"})
            busy = [f"{name} runs" for name in left] + [
                f"cannot be checked: {name}" for name in blind
            ]
            # Not even a lease cuts a download: its target may be the only copy of a result.
            busy += [f"files are being copied: {item['name']}" for item in sample["transfers"]]
        else:
            # With the start time: pids are reused.
            accepted = {(pid, ticks) for pid, ticks in self._armed["accepted"]}
            if self._progress is None:
                verdict = idle_clock.judge_reading(sample, signs, accepted)
            else:
                verdict = self._progress.judge_reading(
                    idle_clock.read_clocks(), sample, signs, accepted
                )
            busy = [*verdict.active, *verdict.unknown]
            busy += [
                "%s, pid %d, holds memory" % (row["name"], row["pid"]) for row in verdict.holders
            ]
            # A GPU is idle while a person types the next command.
            if sample["input_at"] > self._began - seal.INPUT:
                busy.append("somebody has just typed at a terminal")
            busy += self._new_results()
        if busy:
            raise Withdrawn("; ".join(busy[:3]))

    def _new_results(self) -> list[str]:
        """Return results that changed while the box was considered idle."""
        roots = work_signs.result_roots(self._armed["jobs"], self._armed["results"])
        # Seconds to scan all results.
        walk = 120.0
        now = work_signs.newest_change(roots, time.monotonic() + walk, time.time())
        before = self._newest
        self._newest = now.mark
        if not now.whole:
            return ["the results could not be checked within %d s" % walk]
        # The first check compares times, the later ones compare with the check before. One second
        # of slack, as file systems may round a ctime.
        if before is None and now.at / 1e9 <= self._began - float(self._armed["idle_s"]) + 1.0:
            return []
        if before == now.mark:
            return []
        return [f"a result was written: {now.path}"]

    def _save_results(self) -> None:
        """Copy results that a stop would erase to durable storage.

        Raises:
            StopFailed: something could not be copied.
        """
        durable = self._armed["durable"]
        then = self._armed.get("devices") or {}
        now = plan.device_numbers(durable)
        # After an unmount the path is on the root disk, which the stop may erase.
        moved = [path for path in durable if now[path] != then.get(path)]
        if moved:
            raise StopFailed(
                "not stopped, because the durable storage is not the one it was armed with: {}".format(
                    ", ".join(moved)
                )
            )
        saved = result_copies.copy_results(
            self._armed["jobs"],
            self._armed["results"],
            self._armed["ignore"],
            self._armed["durable"],
        )
        if saved.problems:
            raise StopFailed(
                f"not stopped, because results could not be saved: {'; '.join(saved.problems[:3])}"
            )
        self._log_event("mirrored", saved.text)
        failed = story.copy_event_log(self._folder, self._armed["durable"])
        # One durable directory is enough for the log; with none left, no copy can be trusted.
        if failed and len(failed) == len(self._armed["durable"]):
            raise StopFailed(
                "not stopped, because the durable storage cannot be written to: "
                f"{'; '.join(failed)}"
            )

    def _accepts_unsaving(self, name: str) -> bool:
        return name in self._armed["accept_unsaving"] or plan.ANY in self._armed["accept_unsaving"]

    def _end_runs(self) -> None:
        """Send SIGTERM to every run so that it saves, and wait until they exit.

        Raises:
            StopFailed: a run is not known to save and was not accepted, or did not exit.
        """
        sample, signs, _ = self._take_fresh_sample()
        runs = saving.list_saving_runs(sample, signs, self._armed)
        refused = [
            run.name for run in runs if not run.saves and not self._accepts_unsaving(run.name)
        ]
        if refused:
            raise StopFailed(
                "the lease is over, but not parked: not known to save on SIGTERM: "
                f"{', '.join(refused[:5])}"
            )
        self._log_event(
            "stopped-lease",
            "the lease is over; asked to save: %s"
            % (", ".join(run.name for run in runs) or "nothing runs"),
        )
        runners = saving.runner_processes(self._armed["jobs"])
        # Cells are left out: their runner forwards the signal, and must record their exit.
        asked = [*runners, *((run.pid, run.ticks) for run in runs if not run.cell)]
        for pid, ticks in asked:
            # Right before the kill: a run may have exited while the list was made.
            if procstat.is_alive(pid, ticks):
                try:
                    os.kill(pid, signal.SIGTERM)
                except OSError:
                    continue
        saves = [(run.pid, run.ticks) for run in runs if run.saves and not run.cell] + runners
        self._wait_for_exits(saves, [path for run in runs for path in run.folders])
        # A run that does not save on SIGTERM was accepted as lost; whether it exited does not
        # matter.
        left = [run.name for run in runs if run.saves and procstat.is_alive(run.pid, run.ticks)]
        if left:
            raise StopFailed(
                "the lease is over, but not parked: did not end after SIGTERM: "
                f"{', '.join(left[:5])}"
            )
        self._log_event(
            "terminated",
            "saved and ended: %s" % (", ".join(run.name for run in runs if run.saves) or "nothing"),
        )
        self._acquire_queues()

    def _wait_for_exits(self, asked: list[tuple[int, int]], folders: list[str]) -> None:
        began = grown = time.monotonic()
        seen: Any = None
        while any(procstat.is_alive(pid, ticks) for pid, ticks in asked):
            now = time.monotonic()
            # A large checkpoint takes minutes: as long as files grow, the run is saving.
            newest = work_signs.newest_change(folders, now + 5.0)
            if newest != seen:
                seen = newest
                grown = now
            waited = now - began
            if waited > SAVE_MOST * wait_factor() or (
                waited > SAVE_LEAST * wait_factor() and now - grown > SAVE_QUIET * wait_factor()
            ):
                return
            time.sleep(0.2)


def larger_reading(now: float | None, before: float | None) -> float | None:
    """Return the larger of two readings; None if either is missing."""
    if now is None or before is None:
        # A missing reading must stay unknown, or it would count as idle.
        return None
    return max(now, before)
