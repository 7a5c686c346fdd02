"""The local provider itself, spoken to by hand: a server on a socket must bear anything."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rgt_tui.demo import InjectedFault, MachineChange
from rgt_tui.profiles import load_api_tables
from tests.contract.providers.conftest import POD, START, Clock, World
from tests.contract.providers.fakes.renting_runpod import RentingRunPod


async def raw(world: World, data: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes."""
    host, port = world.server.base_url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def ask(
    world: World, method: str, path: str, body: object = None, key: str | None = None
) -> tuple[int, dict[str, str], Any]:
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key or world.server.key}\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\nUser-Agent: rgt/test\r\n\r\n"
    )
    answer = await raw(world, head.encode() + content)
    top, _, rest = answer.partition(b"\r\n\r\n")
    lines = top.decode().split("\r\n")
    headers = {
        name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])
    }
    return int(lines[0].split()[1]), headers, json.loads(rest) if rest else None


async def test_a_pod_has_every_documented_field(world: World) -> None:
    status, headers, pod = await ask(world, "GET", f"/v2/pods/{POD}")
    assert status == 200
    assert headers["ratelimit"] == '"minute";r=599;t=60'
    table = load_api_tables()["runpod"]
    required = {key for key, field in table.parse_fields("Pod").items() if field.required}
    assert required | {"gpu"} == set(pod), "and the fixture of conftest compares the values"
    assert pod["runtime"]["uptime"] == 3600


@pytest.mark.parametrize("key", ["wrong", "", "x" * 5000, "é"])
async def test_a_wrong_key_is_a_401_problem(world: World, key: str) -> None:
    status, headers, data = await ask(world, "GET", "/v2/pods", key=key or " ")
    assert (status, data["status"]) == (401, 401)
    assert headers["content-type"] == "application/problem+json"


async def test_the_rules_of_the_actions(world: World) -> None:
    action = f"/v2/pods/{POD}/action"
    assert (await ask(world, "POST", action, {"action": "start"}))[0] == 409
    assert (await ask(world, "POST", action, {"action": "explode"}))[0] == 422
    assert (await ask(world, "POST", action, ["stop"]))[0] == 422
    assert (await ask(world, "POST", "/v2/pods/none/action", {"action": "stop"}))[0] == 404
    assert (await ask(world, "PUT", f"/v2/pods/{POD}"))[0] == 405
    assert (await ask(world, "GET", "/v2/nothing"))[0] == 404
    status, _, pod = await ask(world, "POST", action, {"action": "stop"})
    assert (status, pod["status"]) == (200, "RUNNING"), "the effect must not show at once"
    assert (await ask(world, "POST", action, {"action": "restart"}))[0] == 409
    await world.clock.advance(1.9)
    assert world.changes == []
    await world.clock.advance(0.2)
    await world.server.wait_settled()
    status, _, pod = await ask(world, "GET", f"/v2/pods/{POD}")
    assert (pod["status"], pod["cost"], pod["actions"], pod["runtime"]) == (
        "EXITED",
        0.0,
        ["start", "terminate"],
        None,
    )
    assert (await ask(world, "POST", action, {"action": "stop"}))[0] == 409
    assert (await ask(world, "POST", action, {"action": "start"}))[0] == 200
    await world.clock.advance(2)
    await world.server.wait_settled()
    assert (await ask(world, "DELETE", f"/v2/pods/{POD}"))[0] == 204
    assert (await ask(world, "GET", f"/v2/pods/{POD}"))[0] == 200
    await world.clock.advance(2)
    await world.server.wait_settled()
    assert (await ask(world, "DELETE", f"/v2/pods/{POD}"))[0] == 404
    assert [change.action for change in world.changes] == ["stop", "start", "terminate"]


async def test_a_terminate_overtakes_a_stop_under_way(world: World) -> None:
    await ask(world, "POST", f"/v2/pods/{POD}/action", {"action": "stop"})
    assert (await ask(world, "POST", f"/v2/pods/{POD}/action", {"action": "terminate"}))[0] == 204
    await world.clock.advance(2)
    await world.server.wait_settled()
    assert [change.action for change in world.changes] == ["terminate"]
    assert world.server.pods[POD].status == "TERMINATED"


async def test_the_books_follow_the_state(world: World) -> None:
    running = 1.38 + (100 + 40) * 0.10 / 730
    assert (await spent(world)) == pytest.approx(running, abs=1e-5)
    await ask(world, "POST", f"/v2/pods/{POD}/action", {"action": "stop"})
    await world.clock.advance(3600)
    await world.server.wait_settled()
    await world.clock.advance(3600)
    assert (await spent(world)) == pytest.approx(2 * running + 100 * 0.20 / 730, abs=1e-4)


async def spent(world: World) -> float:
    _, _, books = await ask(world, "GET", f"/v2/billing/pods?podId={POD}&bucketSize=day")
    (record,) = books["records"]
    assert record["totalAmount"] == pytest.approx(record["gpuAmount"] + record["diskAmount"])
    return float(record["totalAmount"])


async def test_too_many_requests(world: World) -> None:
    server = RentingRunPod(clock=world.clock, per_minute=2, key=world.server.key)
    await server.start()
    other = World(world.clock, server, world.providers, world.provider, [])
    statuses = [(await ask(other, "GET", "/v2/pods"))[0] for _ in range(3)]
    assert statuses == [200, 200, 429]
    world.clock.now += 61
    assert (await ask(other, "GET", "/v2/pods"))[0] == 200
    await server.stop()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / FTP/9\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET /\xff\xfe HTTP/1.1\r\nUser-Agent: rgt/test\r\n\r\n", b"401"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400"),
    ],
)
async def test_malformed_requests_get_an_error_and_the_server_lives(
    world: World, data: bytes, status: bytes
) -> None:
    assert (await raw(world, data)).split(b" ")[1] == status
    assert (await ask(world, "GET", "/v2/pods"))[0] == 200


async def test_nothing_sent_is_no_error(world: World) -> None:
    assert await raw(world, b"") == b""


async def test_a_taken_port_is_named(world: World) -> None:
    port = int(world.server.base_url.rsplit(":", 1)[1])
    second = RentingRunPod()
    with pytest.raises(OSError, match=f"port {port}: Address already in use; choose another port"):
        await second.start(port=port)
    await second.stop()


async def test_a_duplicate_pod_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="already"):
        world.server.add_pod(POD, "again")


async def test_an_owner_who_fails_makes_the_pod_an_error_not_a_lie() -> None:
    clock = Clock()

    async def fail(change: MachineChange) -> None:
        raise RuntimeError(f"cannot {change.action}")

    server = RentingRunPod(clock=clock, sleep=clock.sleep, on_change=fail)
    await server.start()
    server.add_pod("p", "p", created=START)
    world = World(clock, server, None, None, [])  # type: ignore[arg-type]
    await ask(world, "POST", "/v2/pods/p/action", {"action": "stop"})
    await clock.advance(2)
    await server.wait_settled()
    assert server.pods["p"].status == "ERROR"
    await server.stop()


async def test_stopping_ends_hanging_connections_and_pending_changes(world: World) -> None:
    world.server.inject_faults(InjectedFault(on="GET", hang=True))
    hanging = asyncio.create_task(ask(world, "GET", "/v2/pods"))
    await ask(world, "POST", f"/v2/pods/{POD}/action", {"action": "stop"})
    await world.server.stop()
    with pytest.raises((IndexError, ValueError, ConnectionError)):
        await hanging
    assert world.changes == []


async def test_one_connection_serves_many_requests(world: World) -> None:
    one = f"GET /v2/pods HTTP/1.1\r\nAuthorization: Bearer {world.server.key}\r\nUser-Agent: rgt/test\r\n\r\n".encode()
    assert (await raw(world, one * 3)).count(b"HTTP/1.1 200 OK") == 3


async def test_a_terminate_during_a_slow_stop_is_not_forgotten() -> None:
    clock, seen, go = Clock(), [], asyncio.Event()

    async def slow(change: MachineChange) -> None:
        seen.append(change.action)
        if change.action == "stop":
            await go.wait()

    server = RentingRunPod(clock=clock, sleep=clock.sleep, on_change=slow)
    await server.start()
    server.add_pod("p", "p", created=START)
    world = World(clock, server, None, None, [])  # type: ignore[arg-type]
    await ask(world, "POST", "/v2/pods/p/action", {"action": "stop"})
    await clock.advance(2)
    await ask(world, "DELETE", "/v2/pods/p")
    go.set()
    await clock.advance(2)
    await server.wait_settled()
    assert seen == ["stop", "terminate"]
    assert server.pods["p"].status == "TERMINATED"
    await server.stop()
