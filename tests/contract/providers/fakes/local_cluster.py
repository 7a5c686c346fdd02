"""An API server on the loopback whose pods run commands here, so that the real ``kubectl exec`` has a cluster.

The stream is the one that kubectl speaks since 1.30: a WebSocket with the subprotocol v5.channel.k8s.io, in which
the first byte of each message is the channel.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from aiohttp import WSMsgType, web

from rgt_tui.demo.platforms import LocalRequest, LocalResponse
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


SCHEMAS: dict[str, Any] = {
    "/openapi/v3": {
        "paths": {"apis/batch/v1": {"serverRelativeURL": "/openapi/v3/apis/batch/v1?hash=1"}}
    },
    "/openapi/v3/apis/batch/v1": {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.30.0"},
        "paths": {
            "/apis/batch/v1/namespaces/{namespace}/jobs/{name}": {
                "patch": {
                    "parameters": [
                        {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
                    ],
                    "responses": {},
                    "x-kubernetes-group-version-kind": {
                        "group": "batch",
                        "version": "v1",
                        "kind": "Job",
                    },
                }
            }
        },
    },
}
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
        self._sockets: set[web.WebSocketResponse] = set()
        self._processes: list[asyncio.subprocess.Process] = []
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
        found = re.fullmatch(r"/apis/batch/v1/namespaces/([^/]+)/jobs", request.path)
        if found is None or request.method != "POST":
            return super().handle_request(request)
        job = request.parse_json()
        namespace, name = found[1], job["metadata"]["name"]
        if ("jobs", namespace, name) in self.objects:
            refused = self.build_refusal(409, f'jobs.batch "{name}" already exists')
            data = {**cast("dict[str, Any]", refused.data), "reason": "AlreadyExists"}
            return LocalResponse(409, data, refused.headers)
        self.add_job(namespace, name)
        created = self.objects["jobs", namespace, name]
        created["spec"] = job["spec"]
        pod = self.objects["pods", namespace, f"{name}-x7k2p"]
        pod["spec"] = job["spec"]["template"]["spec"]
        self._changes.add(asyncio.ensure_future(self._run_job(created, pod)))
        return LocalResponse(201, created)

    async def _run_job(self, job: dict[str, Any], pod: dict[str, Any]) -> None:
        """Run the container of a Job's pod here, and say how it ended."""
        container = pod["spec"]["containers"][0]
        given = {one["name"]: one["value"] for one in container["env"]}
        process = await asyncio.create_subprocess_exec(
            *container["command"], cwd=self.home, start_new_session=True,
            env=self._environment(given),
        )  # fmt: skip
        self._processes.append(process)
        code = await process.wait()
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        kind = "Failed" if code else "Complete"
        job["status"] = {
            "conditions": [{"type": kind, "status": "True", "message": f"exit {code}"}]
        }

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
