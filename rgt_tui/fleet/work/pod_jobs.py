"""Creates a Kubernetes Job for one command, and follows it: the box is the pod of that Job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rgt_wire.kubernetes_job import parse_claim, pod_body

from rgt_tui.fleet.work.launching import CannotRun
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, KubectlRoute, clean_text
from rgt_tui.ssh import ConfigError, describe_kubectl_error, find_kubectl, quote_words, run_kubectl

DIGEST = re.compile(r"[^@]+@sha256:[0-9a-f]{64}")
_SCRIPT = (
    'mkdir -p "$RGT_OUT" || exit 74; log="$RGT_OUT/run.log"; : >>"$log"; tail -n 0 -f "$log" & '
    'sh -c "$1" >>"$log" 2>&1 & pid=$!; trap \'kill -TERM "$pid"\' TERM INT; '
    'wait "$pid"; s=$?; while kill -0 "$pid" 2>/dev/null; do wait "$pid"; s=$?; done; sleep 1; exit "$s"'
)
"""The container's command: the log goes to the claim and to ``kubectl logs``, and SIGTERM to the command, which as
the first process of a container would otherwise not get it. ``wait`` also ends at the signal, hence the loop.
"""


class _PodContainer(msgspec.Struct, frozen=True, rename={"image_id": "imageID"}):
    name: str
    image: str = ""
    image_id: str = ""


class _ImagePart(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_PodContainer, ...] = ()
    container_statuses: tuple[_PodContainer, ...] = ()


class _PodWithImages(msgspec.Struct, frozen=True):
    spec: _ImagePart = _ImagePart()
    status: _ImagePart = _ImagePart()


class _PodsWithImages(msgspec.Struct, frozen=True):
    items: tuple[_PodWithImages, ...] = ()


class _JobCondition(msgspec.Struct, frozen=True):
    type: str
    status: str = ""
    message: str = ""


class _JobStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_JobCondition, ...] = ()


class _CreatedJob(msgspec.Struct, frozen=True):
    status: _JobStatus = _JobStatus()


class JobOutcome(msgspec.Struct, frozen=True):
    """How a Job ended."""

    is_complete: bool
    text: str


def results_directory(route: KubectlRoute) -> str:
    """Return ``$RGT_OUT`` of a Job: on its first claim, otherwise in the pod."""
    top = "/tmp/rgt"
    if route.claims:
        top = parse_claim(route.claims[0])[1]
    return f"{top}/{route.job}"


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
    variables = {"RGT_OUT": results_directory(route), **env}
    container: dict[str, Any] = {
        "name": route.container or "main", "image": image, "command": ["sh", "-c", _SCRIPT, "rgt", line],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }  # fmt: skip
    if workdir is not None:
        container["workingDir"] = workdir
    # An eviction is not the program's failure, and must not use up its retries.
    disrupted = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": route.job,
            "namespace": route.namespace,
            "labels": {"app.kubernetes.io/managed-by": "rgt"},
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": retries,
            "podFailurePolicy": {"rules": [disrupted]},
            "template": {
                "spec": pod_body(container, list(route.claims), route.gpus, route.grace_s)
            },
        },
    }


class KubernetesJob:
    """The Job of a box, through kubectl.

    Args:
        spec: The box; its route names a Job and an image.
        env: The process's environment.

    Raises:
        ConfigError: there is no kubectl.
    """

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
                        "the Job {job} exists already, and nothing was created: rgt logs {name} shows it; for "
                        "another command set another `job`, or delete it first: rgt down {name} --destroy",
                        job=job,
                        name=name,
                    )
                )
            raise describe_kubectl_error(self._spec, done.errors, "")
        return done.out

    async def resolve_image(self) -> str:
        """Return the image by its digest.

        A tag is resolved by the pods of the namespace that run it already: kubectl cannot query registries.

        Raises:
            CannotRun: no such pod, or they run different images.
            BoxError: kubectl failed.
        """
        image = self._route.image or ""
        if DIGEST.fullmatch(image):
            return image
        out = await self._run_kubectl("get", "pods", "--output=json")
        try:
            pods = msgspec.json.decode(out, type=_PodsWithImages).items
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(
                translate(
                    "kubectl printed something that is not a list of pods: {error}", error=error
                )
            ) from error
        digests = set()
        for pod in pods:
            # By container name: the status has the digest, only the specification has the tag.
            names = {one.name for one in pod.spec.containers if one.image == image}
            for container in pod.status.container_statuses:
                found = re.search(r"@(sha256:[0-9a-f]{64})$", container.image_id)
                if container.name in names and found is not None:
                    digests.add(found[1])
        if len(digests) == 1:
            # Only a colon after the last slash begins a tag: a registry may have a port.
            repository = re.sub(r":[^/:]*$", "", image.partition("@")[0])
            return f"{repository}@{digests.pop()}"
        seen = "no pod of the namespace runs it, so kubectl cannot resolve it"
        if digests:
            seen = f"the pods of the namespace run {len(digests)} different images of that name"
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

    async def find_end(self) -> JobOutcome | None:
        """Return how the Job ended; None = not yet.

        Raises:
            BoxError: it cannot be read.
        """
        out = await self._run_kubectl("get", "job", self._route.job or "", "--output=json")
        try:
            conditions = msgspec.json.decode(out, type=_CreatedJob).status.conditions
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(
                translate("kubectl printed something that is not a Job: {error}", error=error)
            ) from error
        # Not the counts of pods: with retries, a failed pod does not end the Job.
        for condition in conditions:
            if condition.status == "True" and condition.type in ("Complete", "Failed"):
                text = clean_text(": ".join(filter(None, (condition.type, condition.message))))
                return JobOutcome(condition.type == "Complete", text[:300])
        return None
