"""A Kubernetes API server on the loopback, as far as kubectl asks one: Jobs, pods, claims, and their controller."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer

CORE = {
    "pods": "Pod", "persistentvolumeclaims": "PersistentVolumeClaim", "configmaps": "ConfigMap",
}  # fmt: skip
SHORT = {"pods": ["po"], "persistentvolumeclaims": ["pvc"], "configmaps": ["cm"]}
VERBS = ["delete", "get", "list", "patch"]


def resource(name: str, kind: str) -> dict[str, Any]:
    """Return what discovery says of a kind of object."""
    return {
        "name": name,
        "singularName": kind.lower(),
        "namespaced": True,
        "kind": kind,
        "verbs": VERBS,
        "shortNames": SHORT.get(name, []),
    }


def stamp(at: float) -> str:
    """Return a time as the API writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class LocalKubernetes(LocalServer):
    """Objects by ``(plural, namespace, name)``; a Job keeps one pod running until it is suspended or deleted."""

    scheme = ""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.key = ""  # like `kubectl proxy`: kubectl sends no key over plain http
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.policies: list[str | None] = []
        """``propagationPolicy`` of each deletion of a Job."""
        self.rights: dict[str, tuple[str, ...]] | None = None
        """Namespace → what the person may do there, as ``verb`` or ``verb plural``; None = everything everywhere."""

    def kubeconfig(self, folder: Path, context: str = "local") -> Path:
        """Write the file by which kubectl finds this server."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.base_url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
            "current-context": context,
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def put(self, thing: dict[str, Any]) -> None:
        """Add an object as it is."""
        plural = next(
            name for name, kind in {**CORE, "jobs": "Job"}.items() if kind == thing["kind"]
        )
        self.objects[plural, thing["metadata"]["namespace"], thing["metadata"]["name"]] = thing

    def add_pod(
        self, namespace: str, name: str, *, owner: tuple[str, str] | None = None, gpus: int = 1
    ) -> str:
        """Add a pod that runs; returns its UID."""
        uid = str(uuid.uuid4())
        owners: list[dict[str, object]] = []
        if owner is not None:
            owners = [
                {
                    "apiVersion": "batch/v1",
                    "kind": owner[0],
                    "name": owner[1],
                    "uid": "o",
                    "controller": True,
                }
            ]
        self.objects["pods", namespace, name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": stamp(self.clock()),
                "labels": {"job-name": owner[1]} if owner and owner[0] == "Job" else {},
                **({"ownerReferences": owners} if owner else {}),
            },
            "spec": {
                "nodeName": "gpu-node-1",
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
            },
            "status": {"phase": "Running", "startTime": stamp(self.clock())},
        }  # fmt: skip
        return uid

    def add_job(self, namespace: str, name: str, *, gpus: int = 1) -> str:
        """Add a Job with its pod; returns the pod's UID."""
        self.objects["jobs", namespace, name] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": stamp(self.clock()),
            },
            "spec": {"suspend": False},
            "status": {"active": 1, "ready": 1, "terminating": 0},
        }
        return self.add_pod(namespace, f"{name}-x7k2p", owner=("Job", name), gpus=gpus)

    def add_claim(self, namespace: str, name: str, size: str) -> None:
        """Add a bound claim of a volume."""
        self.objects["persistentvolumeclaims", namespace, name] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": str(uuid.uuid4())},
            "spec": {},
            "status": {"phase": "Bound", "capacity": {"storage": size}},
        }

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return a Status, as the API does."""
        reasons = {
            401: "Unauthorized",
            403: "Forbidden",
            404: "NotFound",
            405: "MethodNotAllowed",
            409: "Conflict",
        }
        data = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reasons.get(status, "InternalError"),
            "code": status,
            "message": text,
        }
        # kubectl reads the reason from nothing else.
        return LocalResponse(status, data, {"Content-Type": "application/json", **(headers or {})})

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer discovery, and what is asked of objects."""
        parts = request.path.strip("/").split("/")
        fixed = DISCOVERY.get("/".join(parts))
        if fixed is not None:
            return LocalResponse(200, fixed)
        if parts[:2] == ["api", "v1"]:
            rest = parts[2:]
        elif parts[:3] == ["apis", "batch", "v1"]:
            rest = parts[3:]
        else:
            return self.build_refusal(404, "the server could not find the requested resource")
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if (refused := self._refused(request.method, namespace, rest)) is not None:
            return refused
        if rest[:1] == ["namespaces"] and len(rest) == 2:
            # Of an object that is not there, kubectl asks whether its namespace is.
            return LocalResponse(
                200, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": rest[1]}}
            )
        if len(rest) == 1 and request.method == "GET":
            return self._list(rest[0], namespace, request)
        if len(rest) == 2:
            return self._one(rest[0], namespace, rest[1], request)
        return self.build_refusal(405, "not here")

    def _refused(self, method: str, namespace: str, rest: list[str]) -> LocalResponse | None:
        """Refuse what the rights do not allow, in the words of RBAC.

        https://kubernetes.io/docs/reference/access-authn-authz/rbac/ (2026-11)
        """
        verbs = {"GET": "get" if len(rest) > 1 else "list", "POST": "create"}
        verb = verbs.get(method, method.lower())
        allowed = None if self.rights is None else self.rights.get(namespace, ())
        if allowed is None or rest[0] == "namespaces" or {verb, f"{verb} {rest[0]}"} & set(allowed):
            return None
        group = "batch" if rest[0] == "jobs" else ""
        what = f"{rest[0]}{'.' if group else ''}{group}"
        name = f' "{rest[1]}"' if len(rest) > 1 else ""
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        who = f'{what}{name} is forbidden: User "alice" cannot {verb} resource "{rest[0]}"'
        return self.build_refusal(403, f'{who} in API group "{group}" {where}')

    def _list(self, plural: str, namespace: str, request: LocalRequest) -> LocalResponse:
        wanted = dict(
            pair.split("=") for pair in request.query.get("labelSelector", "").split(",") if pair
        )
        items = [
            one
            for (kind, place, _), one in sorted(self.objects.items())
            if kind == plural
            and namespace in ("", place)
            and wanted.items() <= one["metadata"].get("labels", {}).items()
        ]
        size = int(request.query.get("limit", "500"))
        begin = int(request.query.get("continue", "0"))
        meta: dict[str, str] = {"resourceVersion": "1"}
        if begin + size < len(items):
            meta["continue"] = str(begin + size)
        group = "batch/v1" if plural == "jobs" else "v1"
        kind = {"jobs": "JobList", "pods": "PodList"}.get(plural, "PersistentVolumeClaimList")
        return LocalResponse(
            200,
            {
                "kind": kind,
                "apiVersion": group,
                "metadata": meta,
                "items": items[begin : begin + size],
            },
        )

    def _one(self, plural: str, namespace: str, name: str, request: LocalRequest) -> LocalResponse:
        found = self.objects.get((plural, namespace, name))
        if found is None:
            group = ".batch" if plural == "jobs" else ""
            return self.build_refusal(404, f'{plural}{group} "{name}" not found')
        if request.method == "GET":
            return LocalResponse(200, found)
        if request.method == "PATCH" and plural == "jobs":
            found["spec"]["suspend"] = bool(request.parse_json()["spec"]["suspend"])
            self.apply_later(lambda: self._reconcile(namespace, name))
            return LocalResponse(200, found)
        if request.method == "DELETE":
            if plural == "jobs":
                self._delete_job(namespace, name, request)
            elif any(one.get("controller") for one in found["metadata"].get("ownerReferences", ())):
                self.add_pod(
                    namespace,
                    f"{name}-again",
                    owner=("Job", found["metadata"]["labels"]["job-name"]),
                )
                del self.objects[plural, namespace, name]
            else:
                del self.objects[plural, namespace, name]
            return LocalResponse(
                200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
            )
        return self.build_refusal(405, "not allowed")

    def _delete_job(self, namespace: str, name: str, request: LocalRequest) -> None:
        body = request.parse_json() or {}
        policy = body.get("propagationPolicy") or request.query.get("propagationPolicy")
        self.policies.append(policy)
        del self.objects["jobs", namespace, name]
        if policy in ("Background", "Foreground"):
            self.apply_later(lambda: self._end_pods(namespace, name))

    async def _reconcile(self, namespace: str, name: str) -> None:
        job = self.objects.get(("jobs", namespace, name))
        if job is not None and job["spec"]["suspend"]:
            job["status"] = {
                "terminating": 0,
                "conditions": [{"type": "Suspended", "status": "True"}],
            }
            await self._end_pods(namespace, name)
        elif job is not None and not self._pods(namespace, name):
            job["status"] = {"active": 1}
            self.add_pod(namespace, f"{name}-y8m3q", owner=("Job", name))

    async def _end_pods(self, namespace: str, name: str) -> None:
        for key in self._pods(namespace, name):
            del self.objects[key]

    def _pods(self, namespace: str, name: str) -> list[tuple[str, str, str]]:
        return [
            key
            for key, one in self.objects.items()
            if key[:2] == ("pods", namespace) and one["metadata"]["labels"].get("job-name") == name
        ]


DISCOVERY: dict[str, dict[str, Any]] = {
    "version": {"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
    "api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [resource(name, kind) for name, kind in CORE.items()],
    },
    "apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": "batch",
                "versions": [{"groupVersion": "batch/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"},
            }
        ],
    },
    "apis/batch/v1": {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "batch/v1",
        "resources": [resource("jobs", "Job")],
    },
}
