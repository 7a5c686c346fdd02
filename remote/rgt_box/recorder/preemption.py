"""Notices of a platform that it takes this machine away, and the request to save that follows.

A thread polls the machine's metadata service; a hook that catches a platform's signal calls
`announce_notice`, and a queue's runner that Slurm ends `announce_job_end`. Each writes the notice
to one file, and only the recorder reports that file, so a notice is reported once and no
run is asked twice, also across two recorders.

Exchanges as documented by the vendors: "Spot Instance interruption notices" (EC2, IMDSv2),
"Preemptible VM instances" and "Query metadata server for maintenance event notices" (Google),
"Scheduled Events for Linux VMs" (Azure).
"""

from __future__ import annotations

import calendar
import os
import signal
import threading
import time

from rgt_box import background, files, jsonline, place, procstat
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_wire import JsonObject

    Notice = JsonObject

ADDRESS = "169.254.169.254"
EC2, GCE, AZURE = "ec2", "gce", "azure"

MACHINE_MARKS = {
    EC2: (("sys_vendor", "amazon ec2"), ("bios_version", "amazon")),
    GCE: (("product_name", "google compute engine"),),
    AZURE: (("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),),
}
"""Platform → files below /sys/class/dmi/id with a text that only its machines have, in lower case.
"""
NAMES = {EC2: "EC2", GCE: "Google Cloud", AZURE: "Azure"}


def applicable_sources(allowed: list[str], dmi: str = "/sys/class/dmi/id") -> dict[str, str]:
    """Return platform → address of its metadata service, for those that this machine belongs to.

    A service is only contacted if the profile allows it and the machine's own description names the
    platform: another host at this address could be anything.

    Args:
        allowed: Platforms that the profile names.
        dmi: Directory of the machine's description.
    """
    simulated = os.environ.get("RGT_METADATA", "")
    if simulated:
        name, _, address = simulated.partition("=")
        return {one: address for one in allowed if one == name}
    found = {}
    for name in allowed:
        for entry, text in MACHINE_MARKS.get(name, ()):
            content = procstat.read_bytes(os.path.join(dmi, entry), 256) or b""
            if text in content.decode("utf-8", "replace").lower():
                found[name] = ADDRESS
    return found


class MetadataService:
    """Reads the notice of one platform from its metadata service, never through a proxy.

    Args:
        name: `EC2`, `GCE` or `AZURE`.
        address: ``HOST`` or ``HOST:PORT``.
    """

    def __init__(self, name: str, address: str) -> None:
        self._name = name
        self._address = address
        self._token = self._etag = self._own_name = ""
        self._maintenance_since = 0.0

    def read_notice(self) -> Notice | None:
        """Return the current notice; None without one.

        Raises:
            OSError: The service does not answer, or not as documented.
        """
        if self._name == EC2:
            return self._read_ec2()
        if self._name == GCE:
            return self._read_gce()
        return self._read_azure()

    def _send_request(
        self, method: str, path: str, headers: dict[str, str], timeout_s: float = 2.0
    ) -> tuple[int, str, dict[str, str]]:
        import http.client  # here: most machines have no such service

        # http.client ignores proxy variables; a proxy would answer for another machine.
        connection = http.client.HTTPConnection(self._address, timeout=timeout_s)
        most_bytes = 1 << 20
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = answer.read(most_bytes).decode("utf-8", "replace")
            names = {key.lower(): value for key, value in answer.getheaders()}
            return answer.status, text, names
        except http.client.HTTPException as error:
            raise OSError(background.error_text(error)) from error
        finally:
            connection.close()

    def _read_ec2(self) -> Notice | None:
        for _ in range(2):
            if not self._token:
                # Six hours, the maximum that EC2 accepts.
                lasts = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
                status, text, _ = self._send_request("PUT", "/latest/api/token", lasts)
                _require_status(status, 200)
                self._token = text.strip()
            status, text, _ = self._send_request(
                "GET",
                "/latest/meta-data/spot/instance-action",
                {"X-aws-ec2-metadata-token": self._token},
            )
            if status != 401:
                break
            self._token = ""  # it has expired
        # EC2's answer as long as no interruption is planned.
        if status == 404:
            return None
        _require_status(status, 200)
        body = _parse_object(text)
        try:
            ends = calendar.timegm(time.strptime(str(body.get("time")), "%Y-%m-%dT%H:%M:%SZ"))
        except ValueError:
            ends = None
        return make_notice(NAMES[EC2], str(body.get("action") or "terminate"), ends)

    def _read_gce(self) -> Notice | None:
        root = "/computeMetadata/v1/instance/"
        flavor = {"Metadata-Flavor": "Google"}
        path = root + "preempted"
        if self._etag:
            # The service answers at once when the value differs from that of the last answer.
            path += f"?wait_for_change=true&timeout_sec=4&last_etag={self._etag}"
        status, text, headers = self._send_request("GET", path, flavor, timeout_s=8.0)
        _require_status(status, 200)
        self._etag = headers.get("etag", "")
        if text.strip().upper() == "TRUE":
            # Documented as 30 s between the notice and the power-off.
            return make_notice(NAMES[GCE], "preempted", time.time() + 30.0)
        status, text, _ = self._send_request("GET", root + "maintenance-event", flavor)
        _require_status(status, 200)
        if text.strip() != "TERMINATE_ON_HOST_MAINTENANCE":
            self._maintenance_since = 0.0
            return None
        # Documented for machines with GPUs: an hour before.
        self._maintenance_since = self._maintenance_since or time.time()
        return make_notice(NAMES[GCE], "host maintenance", self._maintenance_since + 3600.0)

    def _read_azure(self) -> Notice | None:
        from email.utils import parsedate_to_datetime

        flavor = {"Metadata": "true"}
        status, text, _ = self._send_request(
            "GET", "/metadata/scheduledevents?api-version=2020-07-01", flavor
        )
        _require_status(status, 200)
        listed = _parse_object(text).get("Events")
        if not isinstance(listed, list):
            return None
        found = []
        for event in listed:
            kind = str(event.get("EventType"))
            if kind not in ("Preempt", "Terminate", "Reboot", "Redeploy"):
                continue
            # Every machine of a set gets the events of all.
            if self._read_own_name() not in [name.lower() for name in event.get("Resources") or ()]:
                continue
            try:
                ends = parsedate_to_datetime(str(event.get("NotBefore"))).timestamp()
            except (TypeError, ValueError):
                ends = time.time()  # it is empty once the event has started
            found.append(make_notice(NAMES[AZURE], kind.lower(), ends))
        return min(found, key=lambda notice: float(notice["ends"]), default=None)

    def _read_own_name(self) -> str:
        if not self._own_name:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            status, text, _ = self._send_request("GET", path, {"Metadata": "true"})
            _require_status(status, 200)
            self._own_name = text.strip().lower()
        return self._own_name


def _require_status(status: int, wanted: int) -> None:
    if status != wanted:
        raise OSError(f"status {status}")


def _parse_object(text: str) -> JsonObject:
    found = jsonline.loads_dict(text.encode("utf-8"))
    if found is None:
        raise OSError("its answer is not a JSON object")
    return found


def make_notice(source: str, action: str, ends: float | None) -> Notice:
    """Return a notice as it is stored.

    Args:
        source: Name of the platform.
        action: What the platform calls it.
        ends: When the machine is taken away (epoch seconds); None = unknown.
    """
    return {"source": source, "action": action, "ends": ends, "unasked": []}


def announce_notice(
    folder: str, notice: Notice, jobs: list[str], save_ahead_s: float = 120.0
) -> None:
    """Store a notice, and ask the runs to save once little time is left, each notice only once.

    Args:
        folder: The state directory.
        notice: From `make_notice`.
        jobs: Job directories that the recorder watches.
        save_ahead_s: Seconds before the end from which runs are asked: before that they work on.
    """
    known = state_files.read_notice(folder) or {}
    fields: JsonObject = {"at": round(time.time(), 3), "asked": None, "unasked": []}
    fields.update(known)
    fields["boot"] = place.boot_id()
    differs = any(known.get(key) != notice[key] for key in ("source", "action"))
    # The end of some notices is counted from now, so that of the first one is kept.
    if differs or not fields["asked"]:
        fields.update(notice)
    ends = fields["ends"]
    if fields["asked"] is None and (ends is None or ends - time.time() <= save_ahead_s):
        from rgt_box.autostop import saving  # here: most recorders never need it

        # Written before: a second signal would kill a run that is saving.
        state_files.write_json(folder, state_files.PREEMPTION, dict(fields, asked=[]))
        fields["asked"], fields["unasked"] = saving.ask_runs_to_save(jobs)
    if fields != known:
        state_files.write_json(folder, state_files.PREEMPTION, fields)


def announce_job_end(folder: str, boot: str, action: str, ends: float | None, run: str) -> None:
    """Store that Slurm ends the job of a run, which its runner has already asked to save.

    Args:
        folder: The state directory of a host whose recorder reports it.
        boot: The boot of that host.
        action: Why, in a word or two.
        ends: When (epoch seconds); None = unknown.
        run: Name of the run. Tasks of one array that end together share one notice.
    """
    lock = files.FileLock(os.path.join(folder, "preemption.lock"))
    is_locked = lock.acquire(1.0)
    try:
        known = state_files.read_json(folder, state_files.PREEMPTION)
        same = (known.get("source"), known.get("action")) == (state_files.SLURM, action)
        now = round(time.time(), 3)
        asked = [run]
        together_s = 60.0
        if same and abs((known.get("ends") or now) - (ends or now)) <= together_s:
            asked = sorted({*(known.get("asked") or ()), run})
        fields = dict(make_notice(state_files.SLURM, action, ends), at=now, asked=asked, boot=boot)
        state_files.write_json(folder, state_files.PREEMPTION, fields)
    finally:
        # Without the lock, too: a notice that forgets another task is better than none.
        if is_locked:
            lock.release()


def _target_text(notice: Notice) -> str:
    if notice["source"] == state_files.SLURM:
        return "a job"
    return "this machine"


def notice_text(notice: Notice) -> str:
    """Return a notice as an event's text."""
    words = f"{notice['source']} takes {_target_text(notice)} away ({notice['action']})"
    if notice["ends"] is not None:
        at = time.strftime("%H:%M:%S", time.gmtime(notice["ends"]))
        words += " at %s UTC, in %d s" % (at, max(0.0, notice["ends"] - time.time()))
    if notice.get("asked"):
        words += "; asked to save: " + ", ".join(notice["asked"])
    if notice["unasked"]:
        words += "; not asked, because SIGTERM is not known to make it save: "
        words += ", ".join(notice["unasked"])
    return words


class PreemptionWatch:
    """Polls the metadata services of this machine in a thread, and reports the stored notice.

    Args:
        folder: The state directory.
        jobs: Returns the job directories that the recorder watches.
    """

    def __init__(self, folder: str, jobs: Callable[[], list[str]]) -> None:
        self._folder = folder
        self._jobs = jobs
        self._services: dict[str, MetadataService] = {}
        self._thread: threading.Thread | None = None
        self._failed: dict[str, int] = {}
        self._failures: list[str] = []
        self._reported: Notice | None = None
        self._seen: list[Any] = []
        self.notice: Notice | None = None
        """The stored notice, as a sample has it."""

    def set_platforms(self, allowed: list[str]) -> None:
        """Poll the platforms that the profile allows, if this machine is one of theirs."""
        sources = applicable_sources(allowed)
        self._services = {
            name: self._services.get(name) or MetadataService(name, address)
            for name, address in sources.items()
        }
        # One thread forever: it reads the current services in each round.
        if self._services and self._thread is None:
            self._thread = threading.Thread(target=self._poll_services, daemon=True)
            self._thread.start()

    def _poll_services(self, period_s: float = 2.0, simulated_period_s: float = 0.1) -> None:
        if os.environ.get("RGT_METADATA"):
            period_s = simulated_period_s
        while True:
            # A copy: `set_platforms` replaces the dictionary from the recorder's thread.
            for name, service in list(self._services.items()):
                self._poll_service(name, service)
            # A service that does not answer is asked less often.
            failed = min(self._failed.values(), default=0)
            time.sleep(period_s * min(12, 1 + failed))

    def _poll_service(self, name: str, service: MetadataService, tolerated: int = 10) -> None:
        try:
            notice = service.read_notice()
            if notice is not None:
                announce_notice(self._folder, notice, self._jobs())
        except Exception as error:  # nothing may end the thread
            self._failed[name] = self._failed.get(name, 0) + 1
            if self._failed[name] == tolerated:
                self._failures.append(
                    f"{NAMES.get(name, name)} cannot announce that it takes this machine away: "
                    f"its metadata service: {background.error_text(error)}"
                )
            return
        self._failed[name] = 0
        if notice is None and (state_files.read_notice(self._folder) or {}).get(
            "source"
        ) == NAMES.get(name):
            state_files.unlink_everywhere(self._folder, state_files.PREEMPTION)
        elif notice is None:
            return
        os.kill(os.getpid(), signal.SIGHUP)  # wakes the recorder

    def has_changed(self) -> bool:
        """Return whether the stored notice is another one than that of the last `poll_events`."""
        return self._sign_files() != self._seen

    def _sign_files(self) -> list[Any]:
        places = state_files.state_folders(self._folder)
        return [files.signature(os.path.join(where, state_files.PREEMPTION)) for where in places]

    def poll_events(self) -> list[tuple[str, str, str]]:
        """Return new events as ``(kind, text, level)``, and update `notice`."""
        events = [("no-notice", text, "info") for text in self._failures]
        # Not cleared: the thread may have added one since the line above.
        self._failures = self._failures[len(events) :]
        if not self.has_changed() and self.notice is None:
            return events
        self._seen = self._sign_files()
        before = self.notice
        self.notice = state_files.read_notice(self._folder)
        if self.notice is None:
            if before is not None and not any(self._seen):
                target = _target_text(before)
                text = f"{before['source']} no longer takes {target} away ({before['action']})"
                events.append(("preemption-withdrawn", text, "info"))
            self._reported = None
        elif self._changed_since_report(self.notice):
            self._reported = self.notice
            events.append(("preemption", notice_text(self.notice), "error"))
        return events

    def _changed_since_report(self, notice: Notice) -> bool:
        keys = ("source", "action", "asked")
        reported = self._reported or {}
        return any(notice.get(key) != reported.get(key) for key in keys)
