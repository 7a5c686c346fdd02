"""What the vendors' own clients send to a server and read from it: live where they are installed, else recorded.

A recording (`tests/fixtures/clients`) has each call of a client with the requests that it sent and the keys of the
answers that satisfied it. `RGT_UPDATE_CLIENTS=1` with the clients installed writes it again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from rgt_tui.demo import InjectedFault, LocalRequest, LocalResponse, LocalServer
from tests.contract.providers.fakes.local_digitalocean import (
    LocalDigitalOcean,
    LocalSize,
    region_of,
)
from tests.contract.providers.fakes.local_lambda import LocalLambda
from tests.contract.providers.fakes.renting_vast import LocalAsk, RentingVast

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent / "clients"
RECORDINGS = ROOT / "tests/fixtures/clients"
PYTHON = ROOT / ".venv-services/bin/python"
LIMIT_S = 300.0


def vast_world() -> RentingVast:
    """Return a Vast.ai with a bid, a volume and an offer."""
    server = RentingVast(settle_s=0.05)
    server.add_instance(
        31415926, "train-a", created=server.clock() - 3600, is_bid=True, volumes=(77,)
    )
    server.volumes[77] = 50.0
    server.asks[9001] = LocalAsk(9001)
    return server


def lambda_world() -> LocalLambda:
    """Return a Lambda with an instance, a file system and a type."""
    server = LocalLambda(settle_s=0.05)
    server.add_machine("0920582c7ff041399e34823a0be62549", "train-a", filesystems=("data",))
    server.filesystems["data"] = 10**9
    server.types["gpu_1x_a10"] = (75, ("us-west-1",))
    return server


def digitalocean_world() -> LocalDigitalOcean:
    """Return a DigitalOcean with a GPU droplet and one of everything that bills besides."""
    server = LocalDigitalOcean(settle_s=0.05)
    size = LocalSize("gpu-h100x1-80gb", 3.39)
    server.sizes = [size, LocalSize("s-1vcpu-1gb", 0.01, model=None)]
    server.add_droplet("train-a", size)
    server.lists["volumes"].append(
        {
            "id": "v1",
            "name": "data",
            "size_gigabytes": 100,
            "region": region_of("nyc2"),
            "droplet_ids": [],
        }
    )
    return server


@dataclass(frozen=True)
class Client:
    """One vendor's client."""

    package: str
    script: str
    world: Callable[[], LocalServer]

    @property
    def recording(self) -> Path:
        """Where its exchange is kept."""
        return RECORDINGS / f"{self.package}.json"


CLIENTS = (
    Client("vastai", "vastai_calls.py", vast_world),
    Client("pydo", "pydo_calls.py", digitalocean_world),
    Client("lambda-ai-cloud-api-client", "lambda_calls.py", lambda_world),
)


def key_paths(data: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys of an answer; the things of a list have one path."""
    if isinstance(data, list):
        for item in data:
            yield from key_paths(item, f"{path}[]")
    elif isinstance(data, dict):
        for key, value in data.items():
            yield f"{path}.{key}" if path else key
            yield from key_paths(value, f"{path}.{key}" if path else key)


def record(server: LocalServer) -> list[dict[str, Any]]:
    """Let a server note each request and its answer; return the growing list."""
    seen: list[dict[str, Any]] = []
    answer = server.answer_with_fault

    def noted(request: LocalRequest) -> tuple[LocalResponse, InjectedFault | None]:
        found = answer(request)
        keys = sorted(set(key_paths(found[0].data)))
        query = request.query
        seen.append(
            {
                "method": request.method,
                "path": request.path,
                "query": query,
                "body": request.parse_json() if request.body else None,
                "status": found[0].status,
                "keys": keys,
            }
        )
        return found

    server.answer_with_fault = noted  # type: ignore[method-assign]
    return seen


async def run_client(client: Client, server: LocalServer) -> list[dict[str, Any]]:
    """Run all calls of a client against a server; return a row for each: its name, its error, whether it found."""
    process = await asyncio.create_subprocess_exec(
        str(PYTHON), str(HERE / client.script), server.base_url, server.key,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(ROOT / "nowhere"), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode == 0, errors.decode()[-2000:]
    return [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]


async def installed_version(package: str) -> str | None:
    """Return the version of a client where it is installed; None = it is not."""
    if not PYTHON.exists():
        return None
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    process = await asyncio.create_subprocess_exec(
        str(PYTHON), "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    return out.decode().strip() if process.returncode == 0 else None


async def replay(client: Client, server: LocalServer) -> list[str]:
    """Send the recorded requests to a server; return what its answers lack that satisfied the client."""
    faults = []
    headers = {"Authorization": f"{server.scheme}{server.key}"}
    async with httpx.AsyncClient(
        base_url=server.base_url, headers=headers, trust_env=False
    ) as http:
        for row in json.loads(client.recording.read_text())["exchange"]:
            body = {} if row["body"] is None else {"json": row["body"]}
            answer = await http.request(row["method"], row["path"], params=row["query"], **body)
            what = f"{row['method']} {row['path']}"
            if answer.status_code != row["status"]:
                faults.append(f"{what}: {answer.status_code}, recorded {row['status']}")
            elif answer.content:
                lacks = set(row["keys"]) - set(key_paths(answer.json()))
                faults += [f"{what}: no {key}" for key in sorted(lacks)]
    return faults
