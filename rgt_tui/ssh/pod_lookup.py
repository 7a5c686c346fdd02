"""Finds the pod of a box through kubectl, or says in words why it is missing or why kubectl refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, KubectlRoute, clean_text
from rgt_tui.ssh.ssh_errors import AuthFailed, BoxError, ConfigError, NoCommands, Unreachable


class StateReason(msgspec.Struct, frozen=True):
    """Why a container waits or has ended."""

    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    """The state of a container."""

    waiting: StateReason | None = None
    terminated: StateReason | None = None


class PodContainer(msgspec.Struct, frozen=True):
    """A container, in the specification or the status of a pod."""

    name: str
    state: ContainerState = ContainerState()


class PodCondition(msgspec.Struct, frozen=True):
    """A condition of a pod."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a pod."""

    phase: str = "Unknown"
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[PodContainer, ...] = ()


class PodMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The used metadata of a pod."""

    name: str
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class PodContainers(msgspec.Struct, frozen=True):
    """The specification of a pod."""

    containers: tuple[PodContainer, ...] = ()


class KubectlPod(msgspec.Struct, frozen=True):
    """One pod, as kubectl prints it."""

    metadata: PodMetadata
    spec: PodContainers = PodContainers()
    status: PodStatus = PodStatus()

    @property
    def is_running(self) -> bool:
        """Whether commands may run in it, and it is not being deleted."""
        return self.status.phase == "Running" and not self.metadata.deletion_timestamp


class KubectlPods(msgspec.Struct, frozen=True):
    """A list of pods."""

    items: tuple[KubectlPod, ...] = ()


class KubectlResult(msgspec.Struct, frozen=True):
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
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
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


async def find_pod(spec: BoxSpec, program: str, env: Mapping[str, str]) -> str:
    """Return the name of the box's running pod.

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
            return route.pod
        raise describe_kubectl_error(spec, done.errors, route.pod or "")
    try:
        if route.pod is not None:
            pods: tuple[KubectlPod, ...] = (msgspec.json.decode(done.out, type=KubectlPod),)
        else:
            pods = msgspec.json.decode(done.out, type=KubectlPods).items
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreachable(
            translate("kubectl printed something that is not a pod: {error}", error=error)
        ) from error
    return _choose_pod(spec, route, pods).metadata.name


def _choose_pod(spec: BoxSpec, route: KubectlRoute, pods: tuple[KubectlPod, ...]) -> KubectlPod:
    """Return the only running pod; check its container."""
    # Finished pods of a Job stay listed until it is deleted.
    running = [pod for pod in pods if pod.is_running]
    # Choosing one would show figures of, and run commands in, a pod that was not meant.
    if len(running) > 1:
        some = ", ".join(clean_text(pod.metadata.name) for pod in running[:5])
        raise ConfigError(
            translate(
                "boxes.{name}.kubectl: {running} running pods have {pod_selector} ({some}): name one "
                "with `pod`, or narrow `selector`",
                name=spec.name,
                running=len(running),
                pod_selector=route.pod_selector,
                some=some,
            )
        )
    if not running:
        raise Unreachable(_describe_absence(spec, route, pods))
    (pod,) = running
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
    return pod


def _describe_absence(spec: BoxSpec, route: KubectlRoute, pods: tuple[KubectlPod, ...]) -> str:
    where = f"in namespace {route.namespace}"
    if not pods:
        advice = f"kubectl get pods {route.option_text} shows those that exist"
        if route.job is not None:
            advice = f"rgt run {spec.name} -- COMMAND creates the Job, or {advice}"
        return f"kubectl: no pod has {route.pod_selector} {where}; {advice}"
    # RFC 3339 in UTC, which sorts as text.
    newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp)
    name = clean_text(newest.metadata.name)
    text = f"kubectl: pod {name} {where} is {clean_text(_describe_state(newest))[:300]}"
    return f"{text}; kubectl describe pod {name} {route.option_text} has the events"


def _describe_state(pod: KubectlPod) -> str:
    status = pod.status
    # The phase stays "Running" until the last container has ended.
    if pod.metadata.deletion_timestamp and status.phase == "Running":
        return "being deleted"
    said = status.reason or status.phase
    if status.message:
        return f"{said}: {status.message}"
    for container in status.container_statuses:
        state = container.state.waiting or container.state.terminated
        if state is not None and state.reason:
            about = ": ".join(filter(None, (container.name, state.reason, state.message)))
            return f"{said} ({about})"
    unmet = next((one for one in status.conditions if one.status == "False" and one.message), None)
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
                "kubectl: pod {pod} does not exist in namespace {namespace}: it was deleted, evicted "
                "or never created; kubectl get pods {options} shows those that exist; correct "
                "{key}.pod",
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
                "the container has no sh, so rgt cannot run anything in it ({said}); name another one "
                "with {key}.container",
                said=said,
                key=key,
            )
        )
    return Unreachable(f"kubectl: {said}")
