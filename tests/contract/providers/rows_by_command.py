"""The rows of platforms that are asked by their own commands: Slurm's and kubectl.

What the commands say here is what the real ones say: `tests.contract.slurm.test_jobs_as_machines` and
`tests.contract.providers.test_kubernetes` hold it against these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rgt_tui.providers.slurm import FIELDS
from tests.contract.providers.conftest import START
from tests.contract.providers.fakes.local_commands import LocalCommands, Says
from tests.contract.providers.fakes.local_kubernetes import LocalKubernetes
from tests.contract.providers.platform_outcomes import Edit, Row

HOUR = 3600.0
NO_PRICES = "it tells no prices"
NO_RATE = "the command names no such answer"
NO_HTTP = "a command follows no redirect"
BY_HAND = "rgt makes the call itself"
ALL = "its list comes whole"

COMMAND: Mapping[str | tuple[str, str], str] = {
    "429 that says when": NO_RATE,
    "a redirect": NO_HTTP,
    "no second page": ALL,
    "no price": NO_PRICES,
    "the price as text": NO_PRICES,
    "404, and no list": "what it does not know it never lists",
    "404, but in the list": "what it does not know it never lists",
    "balance": "no command tells it",
    "spend": "no command tells it",
    "offers": "nothing is rented there: jobs are submitted",
    "find": "nothing is rented there: jobs are submitted",
    "create": "nothing is rented there: jobs are submitted",
    "done by hand": BY_HAND,
}

JOB = "4711"
SLURM_ERROR = "slurm_load_jobs error: "
UNKNOWN_JOB = Says(err=f"{SLURM_ERROR}Invalid job id specified", status=1)
NO_ACCOUNTING = Says(err="Slurm accounting storage is disabled", status=1)
SQUEUE = "squeue --noheader --array"
"""Times as ``SLURM_TIME_FORMAT=%s`` has them."""


def squeue_line(job: str, state: str = "RUNNING", name: str = "train-a") -> str:
    """Return what squeue prints of a job on one node with two GPUs."""
    end = str(int(START + HOUR))
    return (
        "\t".join(
            (job, job, state, str(int(START - HOUR)), end, "1", "gres/gpu:a100:2", "gpu", name)
        )
        + "\n"
    )


def slurm(**_: Any) -> LocalCommands:
    other = squeue_line("4700", name="other")
    both, one = Says(other + squeue_line(JOB)), Says(squeue_line(JOB))
    rest = {f"{SQUEUE} --jobs=": UNKNOWN_JOB, "sacct ": NO_ACCOUNTING}
    return LocalCommands(
        {
            "on": {
                f"{SQUEUE} --me": both,
                f"{SQUEUE} --jobs={JOB}": one,
                f"scancel {JOB}": Says(then="gone"),
                **rest,
            },
            # squeue shows no jobs that have ended, and scancel is content with every number.
            "gone": {
                f"{SQUEUE} --me": Says(other),
                f"{SQUEUE} --jobs={JOB}": Says(),
                f"scancel {JOB}": Says(),
                **rest,
            },
        }
    )


def _of_lines(edit: Edit) -> Edit:
    def change(out: str) -> str:
        rows: Any = [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in out.splitlines()]
        rows = edit(rows)
        return "".join("\t".join(row.values()) + "\n" for row in rows)

    return change


def _of_json(edit: Edit) -> Edit:
    return lambda out: json.dumps(edit(json.loads(out)))


NAMESPACE, KUBE_JOB, SUSPENDED = "ml", "ml/job/train-a", "ml/job/old"
BUSY = "Error from server (InternalError): an error on the server has prevented the request from succeeding"


def forbidden(what: str) -> str:
    """Return what kubectl says of a verb that the login may not use."""
    return f'Error from server (Forbidden): {what} is forbidden: User "alice" cannot do that'


def not_found(what: str, name: str) -> Says:
    """Return what kubectl says of an object that is not there."""
    return Says(err=f'Error from server (NotFound): {what} "{name}" not found', status=1)


def shown(items: Sequence[Any]) -> Says:
    """Return a list as ``--output=json`` prints it."""
    data = {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": list(items),
    }
    return Says(json.dumps(data, indent=4) + "\n")


def _objects(*, train: str, old: str = "resting") -> dict[str, Says]:
    """Return what kubectl says where two Jobs are in these states."""
    world = LocalKubernetes(clock=lambda: START - HOUR)
    for name, state in (("train-a", train), ("old", old)):
        if state != "gone":
            world.add_job(NAMESPACE, name)
        if state == "resting":
            world.objects["jobs", NAMESPACE, name]["spec"]["suspend"] = True
            del world.objects["pods", NAMESPACE, f"{name}-x7k2p"]
    world.add_claim(NAMESPACE, "data", "200Gi")

    def of(plural: str) -> list[Any]:
        return [one for (kind, _, _), one in world.objects.items() if kind == plural]

    found = {
        f"kubectl get {what} --namespace={NAMESPACE}": shown(of(what))
        for what in ("jobs", "pods", "persistentvolumeclaims")
    }
    for name in ("train-a", "old", "train-7"):
        job = world.objects.get(("jobs", NAMESPACE, name))
        pods = [one for one in of("pods") if one["metadata"]["labels"].get("job-name") == name]
        found[f"kubectl get job {name} --namespace={NAMESPACE}"] = (
            not_found("jobs.batch", name) if job is None else Says(json.dumps(job, indent=4) + "\n")
        )
        found[f"kubectl get pods --namespace={NAMESPACE} --selector=job-name={name}"] = shown(pods)
        found[f"kubectl patch job {name} "] = Says(f"job.batch/{name} patched (no change)\n")
        found[f"kubectl delete job {name} "] = (
            not_found("jobs.batch", name) if job is None else Says(f'job.batch "{name}" deleted\n')
        )
    return found


def kubernetes(**_: Any) -> LocalCommands:
    patched, deleted = (
        Says("job.batch/train-a patched\n", then="parked"),
        Says('job.batch "train-a" deleted\n', then="gone"),
    )
    park, destroy, start = (
        "kubectl patch job train-a ",
        "kubectl delete job train-a ",
        "kubectl patch job old ",
    )
    started = Says("job.batch/old patched\n", then="started")
    return LocalCommands(
        {
            "on": {**_objects(train="on"), park: patched, destroy: deleted, start: started},
            "parked": {**_objects(train="resting"), destroy: deleted},
            "gone": _objects(train="gone"),
            "started": _objects(train="on", old="on"),
        }
    )


def _kube_state(world: LocalCommands, instance: str) -> str:
    if instance == SUSPENDED:
        return "on" if world.state == "started" else "resting"
    return {"parked": "resting", "gone": "gone"}.get(world.state, "on")


SLURM = Row(
    kind="slurm",
    make=slurm,
    machine=JOB,
    on={"list": f"{SQUEUE} --me", "read": f"{SQUEUE} --jobs={JOB}", "destroy": f"scancel {JOB}"},
    truth=lambda world, _: str(world.state),
    machines_in=lambda rows: rows,
    state="%T",
    subobjects=("%S", "%e", "%b"),
    null="N/A",
    within=_of_lines,
    breaks={
        "401": {"status": 1, "err": f"{SLURM_ERROR}Access/permission denied"},
        ("destroy", "401"): {
            "status": 1,
            "err": f"scancel: error: Kill job error on job id {JOB}: Access/permission denied",
        },
        "500": {
            "status": 1,
            "err": f"{SLURM_ERROR}Unable to contact slurm controller (connect failure)",
        },
        "an error at 200": {"out": f"{SLURM_ERROR}busy\n"},
    },
    lacks={
        **COMMAND,
        "429": NO_RATE,
        "leftovers": "Slurm does not report storage prices",
        "start": "a job that has ended is submitted anew",
        "park": "Slurm has no verb that parks a job",
    },
    differs={("list", "null sub-objects"): "told", ("read", "null sub-objects"): "told"},
)

KUBERNETES = Row(
    kind="kubernetes",
    make=kubernetes,
    machine=KUBE_JOB,
    resting=SUSPENDED,
    on={
        "list": f"kubectl get jobs --namespace={NAMESPACE}",
        "read": f"kubectl get job train-a --namespace={NAMESPACE}",
        "leftovers": "kubectl get persistentvolumeclaims",
        "start": "kubectl patch job old ",
        "park": "kubectl patch job train-a ",
        "destroy": "kubectl delete job train-a ",
    },
    truth=_kube_state,
    machines_in=lambda data: data["items"],
    shown_on="kubectl get pods ",
    state="status.phase",
    subobjects=("spec.nodeName", "status.startTime", "metadata.labels"),
    within=_of_json,
    breaks={
        "401": {"status": 1, "err": forbidden("jobs.batch")},
        "429": {
            "status": 1,
            "err": "Error from server (TooManyRequests): too many requests, please try again later",
        },
        "500": {"status": 1, "err": BUSY},
        "an error at 200": {"out": f"{BUSY}\n"},
    },
    lacks=COMMAND,
    differs={
        ("list", "null sub-objects"): "told",
        ("read", "null sub-objects"): "told",
        # What the server did before it said so, kubectl does not tell.
        **{(verb, "429"): "nobody knows" for verb in ("start", "park", "destroy")},
    },
)

BY_COMMAND = (KUBERNETES, SLURM)
