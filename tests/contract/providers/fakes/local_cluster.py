"""An API server on the loopback whose pods run commands here, so that the real ``kubectl exec`` has a cluster.

The stream is the one that kubectl speaks since 1.30: a WebSocket with the subprotocol v5.channel.k8s.io, in which
the first byte of each message is the channel.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from aiohttp import WSMsgType, web

from rgt_tui.demo import LocalRequest, LocalResponse
from tests.contract.providers.fakes.local_kubernetes import LocalKubernetes

STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255


def end_status(code: int) -> dict[str, Any]:
    """Return the Status that the kubelet sends for an exit status."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }  # fmt: skip


def schema_of(group: str, version: str, kind: str, path: str) -> dict[str, Any]:
    """Return the part of a schema by which kubectl learns that the server checks the fields itself."""
    validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    patch = {
        "parameters": [validation],
        "responses": {},
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    }
    info = {"title": "Kubernetes", "version": "v1.30.0"}
    return {"openapi": "3.0.0", "info": info, "paths": {path: {"patch": patch}}}


SCHEMAS: dict[str, Any] = {
    "/openapi/v3": {
        "paths": {
            "apis/batch/v1": {"serverRelativeURL": "/openapi/v3/apis/batch/v1?hash=1"},
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=1"},
        }
    },
    "/openapi/v3/apis/batch/v1": schema_of(
        "batch", "v1", "Job", "/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    ),
    "/openapi/v3/api/v1": schema_of(
        "", "v1", "ConfigMap", "/api/v1/namespaces/{namespace}/configmaps/{name}"
    ),
}
SCHEMAS["/openapi/v3/api/v1"]["paths"] |= schema_of(
    "", "v1", "Pod", "/api/v1/namespaces/{namespace}/pods/{name}"
)["paths"]
"""Of the schemas only that the server checks the fields itself, which kubectl asks before it creates anything."""


class LocalCluster(LocalKubernetes):
    """Its pods' file system is this machine's; their home is a directory.

    Attributes:
        may_exec: Whether the person may ``create pods/exec``.
        start_error: What the container runtime says instead of starting a command; empty = nothing.
        commands: The command line of every exec.
    """

    def __init__(self, home: Path, **settings: Any) -> None:
        super().__init__(**settings)
        self.home, self.may_exec, self.start_error = home, True, ""
        self.commands: list[list[str]] = []
        self.new_pod_phase = "Running"
        self._sockets: set[web.WebSocketResponse] = set()
        self._processes: list[asyncio.subprocess.Process] = []
        self._containers: dict[str, asyncio.subprocess.Process] = {}
        self._files_came = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._url = ""

    @property
    def base_url(self) -> str:
        """Where it answers."""
        return self._url

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to answer."""
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=4 << 20)
        exec_path = "/api/v1/namespaces/{namespace}/pods/{pod}/exec"
        app.router.add_route("GET", exec_path, self._exec)
        app.router.add_route("POST", exec_path, self._exec)
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self._url = site.name if port else f"http://{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """End it, and everything that its pods run."""
        self.cut_streams()
        self.objects.clear()  # no pod is started again
        for process in self._containers.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            # A runner ends its cell, which is a group of its own.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if self._runner is not None:
            await self._runner.cleanup()

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer as the base does; also a Job that is created, and the schemas that kubectl asks for before."""
        if request.path in SCHEMAS:
            return LocalResponse(200, SCHEMAS[request.path])
        found = re.fullmatch(r"/apis?/.*v1/namespaces/([^/]+)/(jobs|configmaps|pods)", request.path)
        if found is None or request.method != "POST":
            return super().handle_request(request)
        namespace, plural = found[1], found[2]
        if (refused := self._refused("POST", namespace, [plural])) is not None:
            return refused
        sent = request.parse_json()
        name = sent["metadata"]["name"]
        if (plural, namespace, name) in self.objects:
            group = ".batch" if plural == "jobs" else ""
            refused = self.build_refusal(409, f'{plural}{group} "{name}" already exists')
            data = {**cast("dict[str, Any]", refused.data), "reason": "AlreadyExists"}
            return LocalResponse(409, data, refused.headers)
        if request.query.get("dryRun") == "All":
            return LocalResponse(201, sent)
        if plural == "configmaps":
            self.put(sent)
            self._files_came.set()
            return LocalResponse(201, sent)
        if plural == "pods":
            self.put({**sent, "status": {"phase": self.new_pod_phase}})
            sent["metadata"]["uid"] = name
            if self.new_pod_phase == "Pending":
                return LocalResponse(201, sent)
            self._changes.add(
                asyncio.ensure_future(
                    self._run_container(self.objects["pods", namespace, name], {})
                )
            )
            return LocalResponse(201, self.objects["pods", namespace, name])
        self.add_job(namespace, name)
        created = self.objects["jobs", namespace, name]
        created["spec"] = sent["spec"]
        created["metadata"] |= {"annotations": sent["metadata"].get("annotations", {})}
        if sent["spec"].get("completionMode") == "Indexed":
            del self.objects["pods", namespace, f"{name}-x7k2p"]
            self._changes.add(asyncio.ensure_future(self._run_indexes(created)))
            return LocalResponse(201, created)
        pod = self.objects["pods", namespace, f"{name}-x7k2p"]
        pod["spec"] = sent["spec"]["template"]["spec"]
        self._changes.add(asyncio.ensure_future(self._run_job(created, pod)))
        return LocalResponse(201, created)

    async def _run_job(self, job: dict[str, Any], pod: dict[str, Any]) -> None:
        """Run the container of a Job's pod here, and say how it ended."""
        code = await self._run_container(pod, {})
        kind = "Failed" if code else "Complete"
        job["status"] = {
            "conditions": [{"type": kind, "status": "True", "message": f"exit {code}"}]
        }

    async def _run_container(self, pod: dict[str, Any], more: dict[str, str]) -> int:
        """Run the container of a pod; return its exit status, which the pod's status has, too."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        container = pod["spec"]["containers"][0]
        given = {one["name"]: one["value"] for one in container.get("env", [])}
        words = container["command"]
        for volume in pod["spec"].get("volumes", []):
            if "configMap" in volume:
                folder = await self._mount_files(namespace, volume["configMap"]["name"], name)
                words = [word.replace("/rgt/", f"{folder}/") for word in words]
        log = self.home.parent / f"{name}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *words, cwd=self.home, start_new_session=True, stdout=file, stderr=file,
                env=self._environment({**given, **more}),
            )  # fmt: skip
        self._processes.append(process)
        self._containers[name] = process
        code = await process.wait()
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        # As with terminationMessagePolicy: FallbackToLogsOnError.
        ended = {"reason": "Error", "exitCode": code, "message": log.read_text()[-2048:]}
        if code == 0:
            ended = {"reason": "Completed", "exitCode": 0}
        status = {"name": container["name"], "state": {"terminated": ended}}
        pod["status"]["containerStatuses"] = [status]
        return code

    async def _mount_files(self, namespace: str, name: str, pod: str) -> Path:
        """Write a ConfigMap's files for a pod, once there is one; as the kubelet, it waits for it."""
        while (found := self.objects.get(("configmaps", namespace, name))) is None:
            await self._files_came.wait()
            self._files_came.clear()
        folder = self.home.parent / f"{pod}.files"
        folder.mkdir()
        for key, text in found.get("data", {}).items():
            (folder / key).write_text(text)
        for key, packed in found.get("binaryData", {}).items():
            (folder / key).write_bytes(base64.b64decode(packed))
        return folder

    async def _run_indexes(self, job: dict[str, Any]) -> None:
        """Run the pods of an indexed Job, `parallelism` at a time, as its controller does."""
        spec = job["spec"]
        rules = spec["podFailurePolicy"]["rules"]
        final = [code for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])]
        room = asyncio.Semaphore(spec["parallelism"])
        done: list[str] = []
        failed: list[str] = []

        async def run_index(index: int) -> None:
            async with room:
                for attempt in range(spec["backoffLimitPerIndex"] + 1):
                    pod = self._add_index_pod(job, index, attempt)
                    if pod is None:
                        return
                    code = await self._run_container(pod, {"JOB_COMPLETION_INDEX": str(index)})
                    if code == 0 or code in final:
                        break
                (failed if code else done).append(str(index))
                job["status"] = {
                    "completedIndexes": ",".join(sorted(done, key=int)),
                    "failedIndexes": ",".join(sorted(failed, key=int)),
                }

        await asyncio.gather(*map(run_index, range(spec["completions"])))
        kind = "Failed" if failed else "Complete"
        job["status"]["conditions"] = [{"type": kind, "status": "True", "message": ""}]

    def _add_index_pod(
        self, job: dict[str, Any], index: int, attempt: int
    ) -> dict[str, Any] | None:
        """Add the running pod of an index; None if the Job was deleted."""
        meta, spec = job["metadata"], job["spec"]["template"]["spec"]
        if self.objects.get(("jobs", meta["namespace"], meta["name"])) is not job:
            return None
        name = f"{meta['name']}-{index}-{chr(ord('a') + attempt)}7k2p"
        self.add_pod(meta["namespace"], name, owner=("Job", meta["name"]))
        pod = self.objects["pods", meta["namespace"], name]
        pod["spec"] = {**spec, "nodeName": f"gpu-node-{index + 1}"}
        pod["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        return pod

    def _delete_job(self, namespace: str, name: str, request: LocalRequest) -> None:
        """Delete what the Job owns, too: its pods get SIGTERM, its ConfigMap goes."""
        uid = self.objects["jobs", namespace, name]["metadata"]["uid"]
        super()._delete_job(namespace, name, request)
        for key in self._pods(namespace, name):
            process = self._containers.get(key[2])
            if process is not None and process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)
        for key, one in list(self.objects.items()):
            if any(ref["uid"] == uid for ref in one["metadata"].get("ownerReferences", [])):
                del self.objects[key]

    def cut_streams(self) -> None:
        """Cut every open stream, as a load balancer does with an idle one."""
        for socket in tuple(self._sockets):
            transport = (
                socket._req.transport if socket._req is not None else None
            )  # the test's own server
            if transport is not None:
                transport.abort()

    async def _answer(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = LocalRequest(
            request.method, request.path, dict(request.query), "", await request.read(), headers
        )
        answer = self.handle_request(asked)
        more = {"Content-Type": "application/json", **answer.headers}
        return web.Response(status=answer.status, body=answer.body, headers=more)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        namespace, pod = request.match_info["namespace"], request.match_info["pod"]
        refused = None
        if not self.may_exec:
            what = 'cannot create resource "pods/exec" in API group ""'
            refused = self.build_refusal(
                403,
                f'pods "{pod}" is forbidden: User "alice" {what} in the namespace "{namespace}"',
            )
        elif ("pods", namespace, pod) not in self.objects:
            refused = self.build_refusal(404, f'pods "{pod}" not found')
        if refused is not None:
            return web.Response(status=refused.status, body=refused.body, headers=refused.headers)
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"], max_msg_size=0)
        await socket.prepare(request)
        self._sockets.add(socket)
        self.commands.append(request.query.getall("command"))
        try:
            if self.start_error:
                failure = {"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                           "message": f"Internal error occurred: {self.start_error}"}  # fmt: skip
                await socket.send_bytes(bytes([ERROR]) + json.dumps(failure).encode())
            else:
                await self._run(socket, self.commands[-1])
        finally:
            self._sockets.discard(socket)
        await socket.close()
        return socket

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        """Return a pod's environment; the agent looks for results below its home alone, not on all of this machine."""
        looks = {"RGT_ROOTS": str(self.home), "RGT_FIND_SECONDS": "0.5", "RGT_TERMINALS": ""}
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **looks, **more}

    async def _run(self, socket: web.WebSocketResponse, command: list[str]) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.home, start_new_session=True,
            env=self._environment({"RGT_HERE": "pod"}),
        )  # fmt: skip
        self._processes.append(process)
        feeding = asyncio.ensure_future(self._feed(socket, process))
        with contextlib.suppress(ConnectionError):
            assert process.stdout is not None
            assert process.stderr is not None
            await asyncio.gather(
                send_all(socket, STDOUT, process.stdout), send_all(socket, STDERR, process.stderr)
            )
            status = json.dumps(
                end_status(128 - code if (code := await process.wait()) < 0 else code)
            )
            await socket.send_bytes(bytes([ERROR]) + status.encode())
        feeding.cancel()

    async def _feed(
        self, socket: web.WebSocketResponse, process: asyncio.subprocess.Process
    ) -> None:
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[0] == STDIN:
                    process.stdin.write(message.data[1:])
                    await process.stdin.drain()
                elif message.type is WSMsgType.BINARY and message.data[:2] == bytes([CLOSE, STDIN]):
                    process.stdin.close()  # reading goes on: kubectl's pings want their answers
        process.stdin.close()


async def send_all(
    socket: web.WebSocketResponse, channel: int, stream: asyncio.StreamReader
) -> None:
    """Send a stream until its end."""
    while data := await stream.read(32 << 10):
        await socket.send_bytes(bytes([channel]) + data)


@contextlib.asynccontextmanager
async def running_cluster(home: Path) -> AsyncIterator[LocalCluster]:
    """Run a cluster with the pod ``ml/train-0``."""
    cluster = LocalCluster(home, settle_s=0.0)
    await cluster.start()
    try:
        cluster.add_pod("ml", "train-0")
        yield cluster
    finally:
        await cluster.stop()
