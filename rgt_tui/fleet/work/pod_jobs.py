"""Creates a Kubernetes Job for one command or for the cells of a sweep, and follows it.

The box is the pod of that Job. A sweep is an indexed Job: the pod of each index runs the agent's
runner for one cell, in a job directory on the first claim, where every pod reads the state of all
cells. The agent and the sweep reach the pods in a ConfigMap that belongs to the Job.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from rgt_wire.kubernetes_job import parse_claim, pod_body, restart_rules

from rgt_tui.fleet.work.launching import CannotRun, PushedCode, sweep_for
from rgt_tui.fleet.work.queue_split import QueueLine, parse_lines
from rgt_tui.language import translate
from rgt_tui.model import (
    CELLS,
    BoxSpec,
    FrozenStruct,
    JobObject,
    KubectlRoute,
    KubernetesPod,
    ListedPods,
    QueueCell,
    QueueState,
    clean_decoded,
    clean_text,
    read_index_ranges,
)
from rgt_tui.profiles import load_profile
from rgt_tui.providers.image_registry import resolve_image
from rgt_tui.ssh import (
    AgentBundle,
    BoxError,
    ConfigError,
    candidates,
    describe_kubectl_error,
    find_kubectl,
    quote_words,
    run_kubectl,
)

DIGEST = re.compile(r"[^@]+@sha256:[0-9a-f]{64}")
_SCRIPT = (
    'mkdir -p "$RGT_OUT" || exit 74; log="$RGT_OUT/run.log"; : >>"$log"; tail -n 0 -f "$log" & '
    'sh -c "$1" >>"$log" 2>&1 & pid=$!; trap \'kill -TERM "$pid"\' TERM INT; '
    'wait "$pid"; s=$?; while kill -0 "$pid" 2>/dev/null; do wait "$pid"; s=$?; done; sleep 1; '
    'exit "$s"'
)
"""The container's command: the log goes to the claim and to ``kubectl logs``, and SIGTERM to the
command, which as the first process of a container would otherwise not get it. ``wait`` also ends at
the signal, hence the loop.
"""


class JobOutcome(FrozenStruct):
    """How a Job ended."""

    is_complete: bool
    text: str


def job_manifest(
    route: KubectlRoute,
    image: str,
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    workdir: str | None,
    retries: int,
) -> dict[str, Any]:
    """Return the Job of a command.

    Args:
        route: The box's pod, with the settings of its Job.
        image: The image by its digest.
        words: The command: one word is a shell line, several are run unchanged.
        env: Its environment.
        workdir: Its working directory; None = the image's.
        retries: Further pods after a failure. A pod that was evicted or preempted does not count.
    """
    line = quote_words(*words)
    if len(words) == 1:
        line = words[0]
    # First, so that the person's own value wins.
    variables = {"RGT_OUT": route.results_directory, **env}
    container: dict[str, Any] = {
        "name": route.container or "main", "image": image,
        "command": ["sh", "-c", _SCRIPT, "rgt", line],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }  # fmt: skip
    if workdir is not None:
        container["workingDir"] = workdir
    # An eviction is not the program's failure, and must not use up its retries.
    disrupted = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    rules = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": retries,
        "podFailurePolicy": {"rules": [disrupted]},
    }
    pod = pod_body(container, list(route.claims), route.gpus, route.grace_s)
    return _build_object(route, "Job", str(route.job), spec={**rules, "template": {"spec": pod}})


def reader_manifest(route: KubectlRoute, image: str, uid: str, seconds: int) -> dict[str, Any]:
    """Return a pod without GPU that mounts the claims of a Job that has ended.

    It has the Job's label, by which it becomes the box, and not the label by which the Job's
    controller counts pods.

    Args:
        route: The box's pod, with the settings of its Job.
        image: The image by its digest: the nodes have it already, and it has a shell.
        uid: Of the Job, with which the pod is deleted.
        seconds: How long it runs: it ends by itself, even if this machine does not come back.
    """
    container: dict[str, Any] = {
        "name": route.container or "main", "image": image,
        # The shell as the first process handles no signal that it has no trap for.
        "command": ["sh", "-c", f"trap 'exit 0' TERM; sleep {seconds} & wait"],
    }  # fmt: skip
    pod = pod_body(container, list(route.claims), 0, 5)
    pod["activeDeadlineSeconds"] = seconds
    made = _build_object(route, "Pod", f"{route.job}-reader", spec=pod)
    made["metadata"]["labels"]["job-name"] = str(route.job)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": str(route.job), "uid": uid}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def _build_object(route: KubectlRoute, kind: str, name: str, **content: Any) -> dict[str, Any]:
    versions = {"Job": "batch/v1", "ConfigMap": "v1", "Pod": "v1"}
    labels = {"app.kubernetes.io/managed-by": "rgt"}
    metadata = {"name": name, "namespace": route.namespace, "labels": labels}
    return {"apiVersion": versions[kind], "kind": kind, "metadata": metadata, **content}


class SweepManifests(FrozenStruct):
    """The objects of a sweep, in the order in which they are created."""

    job: dict[str, Any]
    files: dict[str, Any]
    """The ConfigMap with the agent and the sweep. It has no owner yet: the Job's UID is unknown."""
    folder: str
    """The job directory on the claim."""


def sweep_manifests(
    spec: BoxSpec,
    image: str,
    words: Sequence[str],
    lines: Sequence[QueueLine],
    agent: AgentBundle,
    *,
    name: str,
    env: Mapping[str, str],
    workdir: str | None,
    retries: int,
    keep: Sequence[str],
    at_once: int,
) -> SweepManifests:
    """Return the Job of a sweep and its files.

    Args:
        spec: The box; its route names a Job.
        image: The image by its digest.
        words: The command, with fields: one word is a shell line, several are run unchanged.
        lines: The cells, by index.
        agent: The agent that runs each cell.
        name: Name of the sweep.
        env: Environment of the cells.
        workdir: Their working directory; None = the image's.
        retries: Further attempts of a failed cell in its pod. A pod that ends otherwise is
            replaced.
        keep: Paths below a cell's directory to copy to durable storage; empty = all.
        at_once: Pods that run at the same time.

    Raises:
        CannotRun: there is no claim, or the Job's name is too long or has dots.
    """
    route = spec.kubectl
    assert route is not None
    key, job = f"boxes.{spec.name}.kubectl", str(route.job)
    if not route.claims:
        raise CannotRun(
            translate(
                "{key}.claims: a sweep needs a claim that all its pods mount; what they write is "
                "lost without one",
                key=key,
            )
        )
    # The name with the index becomes the pod's host name, one label of a domain.
    longest_label = 63
    if "." in job or len(f"{job}-{len(lines) - 1}") > longest_label:
        raise CannotRun(
            translate(
                "{key}.job: {job} names a Job of several pods: use at most 56 characters and no dot",
                key=key,
                job=job,
            )
        )
    mount = parse_claim(route.claims[0])[1]
    # The image is the code of the cells: results of another one cannot be compared.
    request = sweep_for(
        spec, load_profile(spec.profile), words, name=name, code=PushedCode(image), workdir=workdir,
        env=env, retries=retries, keep=keep,
    )  # fmt: skip
    # Results on the claim outlive the pods: a second copy of all there would only take space.
    others = [parse_claim(claim)[1] for claim in route.claims[1:]]
    if not any(f"{request['durable']}/".startswith(f"{other}/") for other in others):
        request["durable"] = None
        if keep:
            request["durable"] = f"{mount}/durable"
    request |= {"workdir": workdir or ".", "data": mount, "jobs": f"{mount}/jobs"}
    request["lines"] = [line.text for line in lines]
    files_name = f"{job}-rgt-{secrets.token_hex(3)}"
    pythons = load_profile(spec.profile).overrides.python
    if spec.python is not None:
        pythons = (spec.python,)
    container: dict[str, Any] = {
        "name": route.container or "main", "image": image,
        "command": ["sh", "-c", _RUNNER.format(pythons=candidates(pythons))],
        # The end of the log of a pod that failed: rgt queue shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }  # fmt: skip
    if workdir is not None:
        container["workingDir"] = workdir
    pod = pod_body(container, list(route.claims), route.gpus, route.grace_s)
    pod["volumes"].append({"name": "rgt", "configMap": {"name": files_name}})
    mounts = pod["containers"][0]["volumeMounts"]
    mounts.append({"name": "rgt", "mountPath": "/rgt", "readOnly": True})
    rules = restart_rules(container["name"], len(lines), at_once)
    made = _build_object(route, "Job", job, spec={**rules, "template": {"spec": pod}})
    cells = {line.name: line.text for line in lines}
    made["metadata"]["annotations"] = {CELLS: msgspec.json.encode(cells).decode()}
    files = _build_object(
        route, "ConfigMap", files_name,
        data={"sweep.json": msgspec.json.encode(request).decode()},
        binaryData={"rgt-box.pyz": base64.b64encode(agent.data).decode()},
    )  # fmt: skip
    return SweepManifests(job=made, files=files, folder=f"{mount}/jobs/{name}")


_RUNNER = """\
for p in {pythons}; do
  "$p" -I -S -c 'import sys; sys.exit(sys.hexversion < 0x3080000)' 2>/dev/null &&
    exec "$p" -I -S -Xutf8 /rgt/rgt-box.pyz queue pod </rgt/sweep.json
done
echo "the image has no Python 3.8 or newer that rgt finds; set python for this box" >&2
exit 2
"""
"""The container's command: it finds a Python, and runs the cell of the pod's index."""

T = TypeVar("T")


class KubernetesJob:
    """The Job of a box, through kubectl.

    Args:
        spec: The box; its route names a Job and an image.
        env: The process's environment.

    Raises:
        ConfigError: there is no kubectl.
    """

    reader_s = 3600

    def __init__(self, spec: BoxSpec, env: Mapping[str, str] = os.environ) -> None:
        assert spec.kubectl is not None
        self._spec, self._route, self._env = spec, spec.kubectl, env
        self._program = find_kubectl(spec, env)

    async def _run_kubectl(self, *words: str, data: bytes = b"") -> bytes:
        done = await run_kubectl(self._spec, self._program, self._env, *words, data=data)
        if done.status != 0:
            # The reason in brackets is the API's; the words around it change between versions.
            if "(AlreadyExists)" in done.errors:
                name, job = self._spec.name, self._route.job
                raise CannotRun(
                    translate(
                        "the Job {job} exists already, and nothing was created: rgt logs {name} "
                        "shows it; for another command set another `job`, or delete it first: rgt "
                        "down {name} --destroy",
                        job=job,
                        name=name,
                    )
                )
            raise describe_kubectl_error(self._spec, done.errors, "")
        return done.out

    async def resolve_image(self) -> str:
        """Return the image by its digest.

        A tag is resolved by the pods of the namespace that run it already, otherwise by its
        registry.

        Raises:
            CannotRun: the pods run different images, or none runs it and the registry does not say.
            BoxError: kubectl failed.
        """
        image = self._route.image or ""
        if DIGEST.fullmatch(image):
            return image
        pods = (await self._read_object(ListedPods, "pods")).items
        digests = set()
        for pod in pods:
            # By container name: the status has the digest, only the specification has the tag.
            names = {one.name for one in pod.spec.containers if one.image == image}
            for container in pod.status.container_statuses or ():
                found = re.search(r"@(sha256:[0-9a-f]{64})$", container.image_id)
                if container.name in names and found is not None:
                    digests.add(found[1])
        if len(digests) == 1:
            # Only a colon after the last slash begins a tag: a registry may have a port.
            repository = re.sub(r":[^/:]*$", "", image.partition("@")[0])
            return f"{repository}@{digests.pop()}"
        seen = translate(
            "the pods of the namespace run {digests} different images of that name",
            digests=len(digests),
        )
        if not digests:
            named = await resolve_image(image)
            if named.by_digest:
                return named.by_digest
            seen = translate("no pod of the namespace runs it, and {reason}", reason=named.reason)
        raise CannotRun(
            translate(
                "boxes.{name}.kubectl.image: {image} is a tag, which may name another image later; "
                "{seen}. Name it by its digest, IMAGE@sha256:…; docker buildx imagetools inspect "
                "IMAGE prints it",
                name=self._spec.name,
                image=clean_text(image),
                seen=seen,
            )
        )

    async def create_job(self, manifest: Mapping[str, Any]) -> None:
        """Create the Job.

        Raises:
            CannotRun: it exists already.
            BoxError: kubectl or the cluster refuses it; nothing was created.
        """
        await self._run_kubectl("create", "--filename=-", data=msgspec.json.encode(manifest))

    async def create_reader(self) -> str:
        """Create a pod that mounts the claims of an ended Job, unless one is there; return it.

        Raises:
            CannotRun: the Job runs or has no claims, or its image is a tag that cannot be resolved.
            BoxError: kubectl or the cluster refuses.
        """
        name, job = self._spec.name, await self._read_job()
        if not self._route.claims:
            raise CannotRun(
                translate(
                    "boxes.{name}.kubectl has no `claims`: what the Job wrote is lost with its pod",
                    name=name,
                )
            )
        if job.end_condition is None:
            raise CannotRun(
                translate(
                    "the Job {job} has not ended: rgt reaches its own pod",
                    job=clean_text(job.metadata.name),
                )
            )
        selector = f"--selector={self._route.pod_selector}"
        pods = (await self._read_object(ListedPods, "pods", selector)).items
        pod = f"{self._route.job}-reader"
        for one in pods:
            # It may be pulling its image, which a new one would start over.
            is_coming = one.status.phase == "Pending" and one.metadata.deletion_timestamp is None
            if one.metadata.name == pod and (one.is_running or is_coming):
                return pod
        image = await self.resolve_image()
        manifest = reader_manifest(self._route, image, job.metadata.uid, self.reader_s)
        # One that has ended still has the name.
        await self.delete_reader(wait="true")
        await self._run_kubectl("create", "--filename=-", data=msgspec.json.encode(manifest))
        return pod

    async def delete_reader(self, *, wait: str = "false") -> None:
        """Delete the pod of `create_reader`, if it exists.

        Raises:
            BoxError: kubectl or the cluster refuses.
        """
        pod = f"{self._route.job}-reader"
        await self._run_kubectl("delete", "pod", pod, "--ignore-not-found", f"--wait={wait}")

    async def create_sweep(self, sweep: SweepManifests) -> None:
        """Create the Job of a sweep, then its files, which are deleted with it.

        Raises:
            CannotRun: the Job exists already.
            BoxError: kubectl or the cluster refuses; the message says if a Job was created.
        """
        create = ("create", "--filename=-", "--output=json")
        # Only a check of the rights and of the size: without its files, the pods would wait.
        await self._run_kubectl(*create, "--dry-run=server", data=msgspec.json.encode(sweep.files))
        out = await self._run_kubectl(*create, data=msgspec.json.encode(sweep.job))
        created = self._decode_object(JobObject, out)
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": created.metadata.name,
            "uid": created.metadata.uid,
        }  # fmt: skip
        metadata = {**sweep.files["metadata"], "ownerReferences": [owner]}
        try:
            await self._run_kubectl(
                *create, data=msgspec.json.encode({**sweep.files, "metadata": metadata})
            )
        except BoxError as error:
            raise CannotRun(
                translate(
                    "{error}. The Job {job} was created, and its pods wait for this ConfigMap: "
                    "delete it with rgt down {name} --destroy",
                    error=error,
                    job=self._route.job,
                    name=self._spec.name,
                )
            ) from error

    async def _read_object(self, kind: type[T], *words: str) -> T:
        return self._decode_object(kind, await self._run_kubectl("get", *words, "--output=json"))

    def _decode_object(self, kind: type[T], out: bytes) -> T:
        try:
            return msgspec.json.decode(out, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(
                translate("kubectl printed something that cannot be used: {error}", error=error)
            ) from error

    async def _read_job(self) -> JobObject:
        return await self._read_object(JobObject, "job", self._route.job or "")

    async def read_queue(self) -> QueueState | None:
        """Return the cells of the Job's sweep, as the cluster reports them; None = it runs no sweep.

        Raises:
            BoxError: it cannot be read.
        """
        job = await self._read_job()
        selector = f"--selector={self._route.pod_selector}"
        pods = (await self._read_object(ListedPods, "pods", selector)).items
        done = read_index_ranges(job.status.completed_indexes)
        failed = read_index_ranges(job.status.failed_indexes)
        cells = []
        for index, text in enumerate(job.metadata.cell_lines.values()):
            try:
                (line,) = parse_lines(text, "")
            except ValueError:
                continue  # another program changed the annotation
            mine = [pod for pod in pods if pod.job_index == index]
            state, reason = "waiting", None
            if index in done:
                state = "done"
            elif index in failed:
                state, reason = "failed", _describe_failure(mine)
            elif any(pod.is_running for pod in mine):
                state = "running"
            cells.append(
                QueueCell(
                    name=line.name,
                    cfg=text.split()[0],
                    task=line.task,
                    epochs=line.epochs,
                    state=state,
                    attempts=len(mine),
                    reason=reason,
                )
            )
        if not cells:
            return None
        states = {cell.state for cell in cells}
        queue = QueueState(
            path=f"job/{job.metadata.name}",
            at=time.time(),
            cells=tuple(cells),
            runner_alive="running" in states,
            done=states == {"done"},
        )
        return clean_decoded(queue)

    async def find_end(self) -> JobOutcome | None:
        """Return how the Job ended; None = not yet.

        Raises:
            BoxError: it cannot be read.
        """
        # Not the counts of pods: with retries, a failed pod does not end the Job.
        end = (await self._read_job()).end_condition
        if end is None:
            return None
        text = clean_text(": ".join(filter(None, (end.type, end.message))))
        return JobOutcome(end.type == "Complete", text[:300])


def _describe_failure(pods: Sequence[KubernetesPod]) -> str | None:
    """Return why the newest of an index's pods has failed; None = unknown."""
    ended = [
        container.state.terminated
        for pod in sorted(pods, key=lambda one: str(one.metadata.creation_timestamp))
        for container in pod.status.container_statuses or ()
        if container.state.terminated is not None
    ]
    if not ended:
        return None
    text = clean_text(" ".join(ended[-1].message.split()))
    return ": ".join(filter(None, (clean_text(ended[-1].reason), text[-300:]))) or None
