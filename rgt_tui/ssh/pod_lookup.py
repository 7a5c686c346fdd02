"""Finds the pod of a box through kubectl, or says in words why it is missing or why kubectl refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    BoxSpec,
    FrozenStruct,
    JobObject,
    KubectlRoute,
    KubernetesPod,
    ListedPods,
    choose_box_pod,
    clean_text,
    how_many,
    read_index_ranges,
)
from rgt_tui.ssh.box_transport import AuthFailed, BoxError, ConfigError, NoCommands, Unreachable


class KubectlResult(FrozenStruct):
    """The result of a kubectl command."""

    status: int
    out: bytes
    errors: str
    """Its standard error."""


async def run_kubectl(
    spec: BoxSpec,
    program: str,
    env: Mapping[str, str],
    *words: str,
    data: bytes = b"",
    seconds: float = 20.0,
) -> KubectlResult:
    """Run kubectl for a box's cluster and namespace, and wait for its end.

    Raises:
        Unreachable: it did not end in time.
        ConfigError: it cannot be started.
    """
    assert spec.kubectl is not None
    try:
        process = await asyncio.create_subprocess_exec(
            # A group of its own: plugins that log in are children of kubectl, and end with it.
            program, *words, *spec.kubectl.cluster_options, env=dict(env), start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(
            translate(
                "{program} cannot be started: {strerror}", program=program, strerror=error.strerror
            )
        ) from error
    try:
        async with asyncio.timeout(seconds):
            out, errors = await process.communicate(data)
    except TimeoutError:
        raise Unreachable(
            translate(
                "kubectl: the cluster of context {context} did not answer within {seconds:g} s",
                context=spec.kubectl.context,
                seconds=seconds,
            )
        ) from None
    finally:
        # A login plugin may wait for a browser, so the whole group is ended.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
    return KubectlResult(process.returncode or 0, out, errors.decode(errors="replace"))


async def find_pod(spec: BoxSpec, program: str, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the box's running pod, and a text with its place.

    Raises:
        ConfigError: the description does not fit: no such context, container, or several pods.
        AuthFailed: the cluster refuses the login, or to read pods.
        Unreachable: the cluster does not answer, or no such pod runs.
    """
    route = spec.kubectl
    assert route is not None
    if route.pod is not None:
        # One pod is an object, not a list of one.
        words = ("get", "pod", route.pod, "--output=json")
    else:
        words = ("get", "pods", f"--selector={route.pod_selector}", "--output=json")
    done = await run_kubectl(spec, program, env, *words)
    if done.status != 0:
        # Some roles allow exec but not get.
        if route.pod is not None and 'cannot get resource "pods"' in done.errors:
            return route.pod, f"{route.namespace}/{route.pod}"
        raise describe_kubectl_error(spec, done.errors, route.pod or "")
    try:
        if route.pod is not None:
            pods: tuple[KubernetesPod, ...] = (msgspec.json.decode(done.out, type=KubernetesPod),)
        else:
            pods = msgspec.json.decode(done.out, type=ListedPods).items
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreachable(
            translate("kubectl printed something that is not a pod: {error}", error=error)
        ) from error
    pod = choose_box_pod(pods)
    if pod is None:
        if route.job is not None and not any(one.is_running for one in pods):
            await _refuse_ended_job(spec, route.job, program, env)
        raise _describe_refusal(spec, route, pods)
    _check_container(spec, route, pod)
    name = pod.metadata.name
    label = f"{route.namespace}/{name}"
    if pod.job_index is None or pod.metadata.controller is None:
        return name, label
    place = translate(
        "index {index} of Job {job}", index=pod.job_index, job=pod.metadata.controller.name
    )
    others = sum(one.is_running for one in pods) - 1
    if others:
        place = translate(
            "{place}, the lowest that runs; {others} more",
            place=place,
            others=how_many(others, "pod"),
        )
    return name, f"{label} ({place})"


async def _refuse_ended_job(spec: BoxSpec, name: str, program: str, env: Mapping[str, str]) -> None:
    """Say how the Job ended, if it did.

    Raises:
        Unreachable: it has ended.
    """
    done = await run_kubectl(spec, program, env, "get", "job", name, "--output=json")
    try:
        job = msgspec.json.decode(done.out, type=JobObject)
    except (msgspec.DecodeError, RecursionError):
        return  # the role may not get jobs, or the Job does not exist
    if job.end_condition is None:
        return
    cells = len(job.metadata.cell_lines)
    counted = ""
    if cells:
        finished = len(read_index_ranges(job.status.completed_indexes))
        counted = translate(
            ": {finished} of {cells} done, rgt queue {box} status shows them",
            finished=finished,
            cells=how_many(cells, "cell"),
            box=spec.name,
        )
    advice = ""
    if spec.creates_job and spec.kubectl is not None and spec.kubectl.claims:
        advice = translate(
            "; rgt run {box} --reader starts a pod that reads its claims", box=spec.name
        )
    raise Unreachable(
        translate(
            "kubectl: no pod runs, the Job {name} is {end}{counted}",
            name=name,
            end=clean_text(job.end_condition.type),
            counted=counted,
        )
        + advice
    )


def _describe_refusal(
    spec: BoxSpec, route: KubectlRoute, pods: tuple[KubernetesPod, ...]
) -> BoxError:
    """Return why none of the pods is the box."""
    running = [pod for pod in pods if pod.is_running]
    if not running:
        return Unreachable(_describe_absence(spec, route, pods))
    some = ", ".join(clean_text(pod.metadata.name) for pod in running[:5])
    return ConfigError(
        translate(
            "boxes.{name}.kubectl: {running} running pods have {pod_selector} ({some}): name one "
            "with `pod`, or narrow `selector`",
            name=spec.name,
            running=len(running),
            pod_selector=route.pod_selector,
            some=some,
        )
    )


def _check_container(spec: BoxSpec, route: KubectlRoute, pod: KubernetesPod) -> None:
    """Check that the pod has the container.

    Raises:
        ConfigError: it has not.
    """
    names = [container.name for container in pod.spec.containers]
    # Checked here, before the first command fails because of it.
    if route.container is not None and names and route.container not in names:
        raise ConfigError(
            translate(
                "boxes.{name}.kubectl.container: pod {name_2} has no container {container}; it has "
                "{names}",
                name=spec.name,
                name_2=pod.metadata.name,
                container=route.container,
                names=clean_text(", ".join(names)),
            )
        )


def _describe_absence(spec: BoxSpec, route: KubectlRoute, pods: tuple[KubernetesPod, ...]) -> str:
    where = f"in namespace {route.namespace}"
    if not pods:
        advice = f"kubectl get pods {route.option_text} shows those that exist"
        if route.job is not None:
            advice = f"rgt run {spec.name} -- COMMAND creates the Job, or {advice}"
        return f"kubectl: no pod has {route.pod_selector} {where}; {advice}"
    long_ago = datetime.min.replace(tzinfo=UTC)
    newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp or long_ago)
    name = clean_text(newest.metadata.name)
    text = f"kubectl: pod {name} {where} is {clean_text(_describe_state(newest))[:300]}"
    return f"{text}; kubectl describe pod {name} {route.option_text} has the events"


def _describe_state(pod: KubernetesPod) -> str:
    status = pod.status
    # The phase stays "Running" until the last container has ended.
    if pod.metadata.deletion_timestamp and status.phase == "Running":
        return "being deleted"
    said = status.reason or status.phase
    if status.message:
        return f"{said}: {status.message}"
    for container in status.container_statuses or ():
        state = container.state.waiting or container.state.terminated
        if state is not None and state.reason:
            about = ": ".join(filter(None, (container.name, state.reason, state.message)))
            return f"{said} ({about})"
    unmet = next(
        (one for one in status.conditions or () if one.status == "False" and one.message), None
    )
    if unmet is not None:
        return f"{said} ({unmet.reason}: {unmet.message})"
    return said


_DENIED = re.compile(r'cannot (\w+) resource "([\w/]+)"')
_KUBECTL_ERROR = re.compile(
    r"^(?:error|Error from server|Unable to connect|The connection to the server|OCI runtime)", re.I
)


def describe_kubectl_error(spec: BoxSpec, text: str, pod: str) -> BoxError:
    """Return the error for what kubectl printed: the box, the key of the fleet file, the next step.

    Args:
        spec: The box.
        text: kubectl's standard error.
        pod: Name of the pod; empty = unknown.
    """
    route = spec.kubectl
    assert route is not None
    lines = [clean_text(line) for line in text.splitlines() if line.strip()]
    # Plugins and warnings print before and after the error itself.
    said = next((line for line in reversed(lines) if _KUBECTL_ERROR.match(line)), "")
    said = (said or "; ".join(lines[-1:]) or "it printed nothing")[:400]
    key, options = f"boxes.{spec.name}.kubectl", route.option_text
    # Before "forbidden", which such a message also contains: this one names the missing right.
    denied = _DENIED.search(text)
    low = text.lower()
    if re.search(r'context "?[^"]*"? does not exist|context was not found', low):
        return ConfigError(
            translate(
                "{key}.context: kubeconfig has no context {context}; kubectl config get-contexts "
                "lists them",
                key=key,
                context=route.context,
            )
        )
    if denied is not None:
        return AuthFailed(
            translate(
                "{key}: the cluster does not let you {denied} {denied_2} in namespace {namespace}: "
                "ask for a role with that right (kubectl auth can-i {denied} {denied_2} {options})",
                key=key,
                denied=denied[1],
                denied_2=denied[2],
                namespace=route.namespace,
                options=options,
            )
        )
    if "must be logged in" in low or "unauthorized" in low:
        return AuthFailed(
            translate(
                "{key}.context: the cluster does not accept the login of context {context}: log in "
                "again",
                key=key,
                context=route.context,
            )
        )
    if "forbidden" in low:
        return AuthFailed(translate("{key}: the cluster refuses: {said}", key=key, said=said))
    if re.search(r'namespaces "[^"]*" not found', low):
        return ConfigError(
            translate(
                "{key}.namespace: there is no namespace {namespace} in {context}",
                key=key,
                namespace=route.namespace,
                context=route.context,
            )
        )
    if re.search(r'pods "[^"]*" not found|pod does not exist', low):
        return Unreachable(
            translate(
                "kubectl: pod {pod} does not exist in namespace {namespace}: it was deleted, "
                "evicted or never created; kubectl get pods {options} shows those that exist; "
                "correct {key}.pod",
                pod=pod,
                namespace=route.namespace,
                options=options,
                key=key,
            )
        )
    if "completed pod" in low:
        return Unreachable(
            translate(
                "kubectl: pod {pod} has ended; kubectl describe pod {pod} {options} says why",
                pod=pod,
                options=options,
            )
        )
    if "container not found" in low or "is not valid for pod" in low:
        return Unreachable(
            translate(
                "kubectl: the container does not run in pod {pod} now ({said}); correct "
                "{key}.container if it never does",
                pod=pod,
                said=said,
                key=key,
            )
        )
    if "executable file not found" in low or "no such file or directory" in low:
        return NoCommands(
            translate(
                "the container has no sh, so rgt cannot run anything in it ({said}); name another "
                "one with {key}.container",
                said=said,
                key=key,
            )
        )
    return Unreachable(f"kubectl: {said}")
