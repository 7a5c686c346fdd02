"""Slurm's own commands, here or on a login node over ssh: a job is the machine, `scancel` ends it.

Slurm has no prices and no park: the fleet file gives the hourly cost. `scancel` exits with 0 and no
output even for finished jobs and nonexistent numbers, so only a later reading shows its effect:
https://slurm.schedmd.com/scancel.html, https://slurm.schedmd.com/squeue.html,
https://slurm.schedmd.com/sacct.html (verified 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    FrozenStruct,
    Leftover,
    Lifecycle,
    Meter,
    MeterKind,
    Permit,
    ProviderRef,
    steady_time,
)
from rgt_tui.providers.answers import AnswerProof, Answers, moment_of
from rgt_tui.providers.command_line import CommandLine
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    Instance,
    Market,
    NotFound,
    OneMachine,
    PermitRefused,
    ProviderError,
    Unreachable,
    make_printable,
    use_permit,
)

_ID = re.compile(r"[1-9][0-9]{0,9}(?:_[0-9]{1,9})?(?:\+[0-9]{1,4})?")
"""A job, a task of an array, or a part of a heterogeneous job. An array's own number would end all
its tasks.
"""
FIELDS = ("%i", "%A", "%T", "%S", "%e", "%D", "%b", "%P", "%j")
"""squeue's format: id, individual job number, state, start, end, nodes, generic resources,
partition, name.
"""
EPOCH = ("env", "SLURM_TIME_FORMAT=%s")
"""Print times as Unix time: the cluster's time zone may differ from ours."""
HOLDS = {
    "RUNNING": Lifecycle.RUNNING,
    "SUSPENDED": Lifecycle.RUNNING,
    "STOPPED": Lifecycle.RUNNING,
    "SIGNALING": Lifecycle.RUNNING,
    "RESIZING": Lifecycle.RUNNING,
    "STAGE_OUT": Lifecycle.RUNNING,
    "COMPLETING": Lifecycle.RUNNING,
    "CONFIGURING": Lifecycle.STARTING,
}
"""States in which nodes are held, also while completing:
https://slurm.schedmd.com/job_state_codes.html
"""
WAITS = frozenset(
    (
        "PENDING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
        "POWER_UP_NODE",
    )
)
"""States in which no nodes are held."""
ENDED = frozenset(
    (
        "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
    )
)  # fmt: skip


class SqueueJob(FrozenStruct, kw_only=True):
    """One line of squeue."""

    id: str
    number: str
    """Number of the individual job: an array task has its own, which its environment shows."""
    state: str
    start: float | None
    end: float | None
    gpus: int | None
    gpu: str | None
    partition: str
    name: str


ANSWERS: Answers = {BillingVerb.PARK: {}, BillingVerb.DESTROY: {"denied": AnswerProof.NOTHING}}


def open_account(ref: ProviderRef, context: AccountContext) -> SlurmAccount:
    """Return the cluster that a job belongs to; see `rgt_tui.providers.control_plane.Open`."""
    return SlurmAccount(
        ref, CommandLine(ref.via, context.env, timeout_s=3 * context.timeout_s), context.clock
    )


class SlurmBox(OneMachine["SlurmAccount"]):
    """One job's control plane."""

    @property
    def console_url(self) -> str:
        """The command that shows the job, because there is no page."""
        return self._account.line.format_command(
            ("squeue", "-j", make_printable(self._instance, 80))
        )

    async def read(self, instance: str) -> Meter:
        """Read one job; see `Provider.read`."""
        return await self._account.read(instance)

    async def list(self) -> tuple[Instance, ...]:
        """List the user's own unfinished jobs."""
        return tuple(
            Instance(
                id=job.id,
                name=job.name,
                meter=self._account.build_meter(job),
                gpu=job.gpu,
                gpu_count=job.gpus,
                region=job.partition or None,
            )
            for job in await self._account.list_jobs()
        )

    async def start(self) -> str:
        """Refuse: a job that has ended must be submitted again."""
        raise ProviderError(translate("Slurm starts no job again; submit it again"), sent=False)

    async def stop(self, permit: Permit) -> str:
        """Refuse: a job cannot be parked."""
        use_permit(permit, BillingVerb.PARK, self.ref, steady_time())
        raise PermitRefused(
            translate("Slurm has no verb that parks a job: scancel ends it. Nothing was sent.")
        )

    async def destroy(self, permit: Permit) -> str:
        """End the job; see `Provider.destroy`. Files on the cluster's file systems stay."""
        use_permit(permit, BillingVerb.DESTROY, self.ref, steady_time())
        try:
            _check_id(self._instance)
        except BadAnswer as error:
            raise PermitRefused(str(error)) from None
        # After the check of the id: `scancel` also accepts -u and --state, which end other jobs.
        said = await self._account.line.run("scancel", self._instance)
        if said.status:
            # The one message after which it is sure that nothing ended.
            refused = "Access/permission denied" in said.err
            code = ""
            if refused:
                code = "denied"
            raise BadAnswer(
                translate(
                    "scancel ended with {status}: {value}",
                    status=said.status,
                    value=said.err or "no word",
                ),
                console=self.console_url,
                code=code,
            )
        return translate("scancel printed nothing (it never confirms)")

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        """Return the exact command."""
        if verb is BillingVerb.PARK:
            return translate("nothing: Slurm has no verb that parks a job")
        return self._account.line.format_command(("scancel", make_printable(instance, 80)))

    def native_label(self, verb: BillingVerb) -> str:
        """Return Slurm's word."""
        if verb is BillingVerb.DESTROY:
            return "scancel"
        return "park (Slurm has none)"

    def native_action(self, verb: BillingVerb) -> str:
        """Return the word used in ``Meter.actions``."""
        if verb is BillingVerb.DESTROY:
            return "scancel"
        return "park"

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        """Return nothing: Slurm knows nothing about file system quotas."""
        return ()

    def list_tiers(self, instance: str) -> dict[str, str]:
        """Return nothing: Slurm does not report mounts."""
        return {}


class SlurmAccount:
    """One person's jobs on one cluster.

    It remembers the jobs it has seen, to distinguish *ended* from *never existed*.
    """

    def __init__(self, ref: ProviderRef, line: CommandLine, clock: Callable[[], float]) -> None:
        self.ref, self.line = ref, line
        self._clock = clock
        self._seen: dict[str, SqueueJob] = {}

    def open_control_plane(self, instance: str) -> SlurmBox:
        """Return the control plane of one job."""
        return SlurmBox(self, instance)

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """Refuse: Slurm does not know what storage is billed."""
        raise ProviderError(
            translate("Slurm does not report storage prices; ask your cluster's administrators"),
            sent=False,
        )

    def open_market(self) -> Market | None:
        """Return None: jobs are submitted, not rented."""
        return None

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    @property
    def source(self) -> str:
        """The source of the readings."""
        return f"squeue on {self.line.location}"

    async def list_jobs(self) -> tuple[SqueueJob, ...]:
        """Return the user's own unfinished jobs, one for each task of an array.

        Raises:
            ProviderError: among others, if a line has an unexpected format.
        """
        return await self._run_squeue("--me")

    async def _run_squeue(self, *which: str) -> tuple[SqueueJob, ...]:
        # Tabs, because a name may have spaces and pipes; it is last, so that its own tabs stay in
        # it.
        said = await self.line.run(
            *EPOCH, "squeue", "--noheader", "--array", *which, f"--format={chr(9).join(FIELDS)}"
        )
        if said.status:
            if "Invalid job id" in said.err:
                raise NotFound(
                    translate(
                        "squeue on {location}: {err}", location=self.line.location, err=said.err
                    )
                )
            raise Unreachable(
                translate(
                    "squeue on {location} ended with {status}: {err}",
                    location=self.line.location,
                    status=said.status,
                    err=said.err,
                )
            )
        jobs = tuple(parse_line(row) for row in said.out.splitlines() if row.strip())
        self._seen.update((job.id, job) for job in jobs)
        return jobs

    async def read(self, instance: str) -> Meter:
        """Read one job, including ended ones. Errors are returned as a meter with an error."""
        try:
            _check_id(instance)
            try:
                jobs = await self._run_squeue(f"--jobs={instance}")
            # squeue forgets a job some minutes after its end (MinJobAge); accounting is asked
            # below.
            except NotFound:
                jobs = ()
            own = [
                job
                for job in jobs
                if job.id == instance or job.id.startswith((f"{instance}_", f"{instance}+"))
            ]
            if own:
                # Several for an array: one task that holds nodes is enough for the meter to run.
                return self.build_meter(max(own, key=lambda job: job.state in HOLDS))
            return await self._read_ended(instance)
        except ProviderError as error:
            return Meter(at=self._clock(), source=self.source, error=str(error))

    async def _read_ended(self, instance: str) -> Meter:
        """Return the meter of a job unknown to squeue, from Slurm's accounting if there is any."""
        states = await self._list_accounted_states(instance)
        words = ", ".join(sorted(set(states)))
        # All of them: a requeued job has a row for each attempt.
        if states and all(state in ENDED for state in states):
            return self._build_gone_meter(
                instance, f"sacct: {make_printable(words, 80)}", f"{self.source}, sacct"
            )
        if states:
            # The two disagree, so the state is unknown.
            why = translate(
                "squeue does not know job {instance}, and sacct reports {words}; try again",
                instance=instance,
                words=make_printable(words, 80),
            )
            return Meter(at=self._clock(), source=self.source, error=why)
        if instance in self._seen or any(name.startswith(f"{instance}_") for name in self._seen):
            return self._build_gone_meter(instance, "no longer in squeue", self.source)
        # A wrong number or another cluster looks the same, so the meter is unknown, not off.
        return Meter(
            lifecycle=Lifecycle.GONE,
            at=self._clock(),
            source=f"{self.source}; no such job, never seen there",
        )

    async def _list_accounted_states(self, instance: str) -> list[str]:
        """Return a job's states in Slurm's accounting; empty without accounting."""
        words = (
            "--noheader",
            "--parsable2",
            "--allocations",
            f"--jobs={instance}",
            "--format=JobID,State",
        )
        try:
            said = await self.line.run("sacct", *words)
        except Unreachable as error:
            # Sent, but without an answer: that proves nothing. Not sent: there is no `sacct` here.
            if error.sent:
                raise
            return []
        if not said.status:
            rows = [row.split("|") for row in said.out.splitlines() if row.count("|") == 1]
        else:
            rows = []
        # The whole array, since accounting names the tasks that wait in one row.
        mine = instance.partition("_")[0].partition("+")[0]
        # "CANCELLED by 1000" includes the user id.
        return [state.partition(" ")[0] for job, state in rows if re.split(r"[_+]", job)[0] == mine]

    def _build_gone_meter(self, instance: str, words: str, source: str) -> Meter:
        return Meter(
            kind=MeterKind.NONE,
            lifecycle=Lifecycle.GONE,
            per_hour=0.0,
            compute_per_hour=0.0,
            at=self._clock(),
            source=source,
            native_status=words,
        )

    def build_meter(self, job: SqueueJob) -> Meter:
        """Return the meter of a job in squeue. Slurm reports no price."""
        life = HOLDS.get(job.state)
        if life is not None:
            kind = MeterKind.COMPUTE_AND_STORAGE
        else:
            kind = MeterKind.UNKNOWN
        if job.state in WAITS:
            life, kind = Lifecycle.STARTING, MeterKind.NONE
        elif job.state in ENDED:
            life, kind = Lifecycle.GONE, MeterKind.NONE
        actions: tuple[str, ...] = ()
        if job.state not in ENDED:
            actions = ("scancel",)
        # A job that waits has a planned start, which lies in the future and is no age.
        created = None
        started = None
        if kind is MeterKind.COMPUTE_AND_STORAGE:
            created = job.start
            started = job.start
        ends_at = None
        if life is Lifecycle.RUNNING:
            ends_at = job.end
        return Meter(
            kind=kind,
            lifecycle=life or Lifecycle.UNKNOWN,
            at=self._clock(),
            source=self.source,
            native_status=make_printable(job.state, 40),
            actions=actions,
            names=(job.number,),
            created=created,
            started=started,
            ends_at=ends_at,
        )


def _check_id(instance: str) -> None:
    if not _ID.fullmatch(instance):
        raise BadAnswer(
            translate(
                "{instance!r} is not a job of Slurm, such as 4711 or 4711_3; correct the "
                "instance in the fleet file",
                instance=make_printable(instance, 80),
            )
        )


def parse_line(row: str) -> SqueueJob:
    """Parse one line of squeue in the format `FIELDS`.

    Raises:
        BadAnswer: it has another format; a list with such a line proves nothing.
    """
    cells = row.split("\t", len(FIELDS) - 1)
    if (
        len(cells) != len(FIELDS)
        # "4711_[1-9]" are tasks that wait, if they are printed as one line.
        or not _ID.fullmatch(cells[0].partition("_[")[0])
        or not cells[0].isprintable()
    ):
        raise BadAnswer(
            translate(
                "squeue printed a line that it does not document: {row}",
                row=make_printable(row, 120),
            )
        )
    ident, number, state, start, end, nodes, resources, partition, name = (
        cell.strip() for cell in cells
    )
    gpu, each = _parse_gpus(resources)
    if re.fullmatch(r"[0-9]{1,6}", nodes):
        count = int(nodes)
    else:
        count = None
    gpus = None
    if each is not None and count is not None:
        gpus = each * count
    return SqueueJob(
        id=ident,
        number=number,
        state=state.partition(" ")[0],
        start=_parse_moment(start),
        end=_parse_moment(end),
        gpus=gpus,
        gpu=gpu,
        partition=make_printable(partition, 80),
        name=make_printable(name, 120),
    )


def _parse_gpus(resources: str) -> tuple[str | None, int | None]:
    """Return type and number of GPUs per node from e.g. ``gres/gpu:a100:2`` or ``gpu:2``.

    The number is 0 if there are no resources at all, and None if it is unknown.
    """
    found = re.findall(
        r"(?:gres/|gres:)?gpu(?::([A-Za-z][\w.-]*))?(?::(\d{1,4}))?(?:\(|,|$)", resources
    )
    if not found:
        return None, 0 if resources in ("", "N/A", "(null)") else None
    kinds = {kind for kind, _ in found if kind}
    return (kinds.pop() if len(kinds) == 1 else None), sum(int(number or 1) for _, number in found)


def _parse_moment(text: str) -> float | None:
    """Return Unix time; None if no time is planned yet (``N/A``)."""
    if re.fullmatch(r"[0-9]{1,12}", text):
        return moment_of(text)
    return None
