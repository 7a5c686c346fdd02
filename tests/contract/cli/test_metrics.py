"""`rgt metrics` against a real sshd, read with Prometheus' own parser."""

from __future__ import annotations

import gc
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rgt_tui.cli import metrics
from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd
from tests.free_ports import free_port
from tests.torture.agent.proxy import Proxy

replace = msgspec.structs.replace


def parsed(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@contextmanager
def serving(rgt: Rgt) -> Iterator[int]:
    process = rgt.start("metrics", "--listen", "127.0.0.1:0")
    try:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        listening = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", said)
        assert listening, said
        yield int(listening.group(1))
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest) == (0, b"")


def get(
    port: int, path: str = "/metrics", method: str = "GET"
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def until(port: int, name: str, value: float) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Scrape until a metric without further labels has a value."""
    while True:
        found = parsed(get(port)[1])
        if found[name][0][1] == value:
            return found


def test_once_prints_what_prometheus_reads(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([replace(lab, per_hour=1.5), replace(lab, name="dead", port=free_port())])
    done = rgt.on("metrics", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    found = parsed(done.stdout)
    assert found["rgt_box_up"] == [({"box": "lab"}, 1.0), ({"box": "dead"}, 0.0)]
    assert {labels["box"] for labels, _ in found["rgt_disk_used_bytes"]} == {"lab"}
    states = {labels["box"]: labels["state"] for labels, value in found["rgt_box_state"] if value}
    assert states == {"lab": "idle", "dead": "unreachable"}
    rows = [json.loads(line) for line in rgt.on("metrics", "--once", "--json").stdout.splitlines()]
    assert {"name": "rgt_box_up", "labels": {"box": "dead"}, "value": 0} in rows
    assert rgt.on("metrics", "--json").returncode == 2


def test_it_serves_http_as_it_should_be(rgt: Rgt, lab: BoxSpec) -> None:
    with serving(rgt) as port:
        until(port, "rgt_box_up", 1.0)
        response, text = get(port)
        assert response.status == 200
        assert response.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
        assert response.getheader("Content-Length") == str(len(text.encode()))
        head, nothing = get(port, method="HEAD")
        assert (head.status, nothing) == (200, "")
        assert int(head.getheader("Content-Length") or 0) > 0
        assert get(port, "/metrics?x=1")[0].status == 200
        assert get(port, "/")[0].status == 404
        post, _ = get(port, method="POST")
        assert (post.status, post.getheader("Allow")) == (405, "GET, HEAD")
        for raw, status in (
            (b"nonsense\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/1.1\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/3.0\r\nHost: x\r\n\r\n", b"505"),
            (b"GET /metrics HTTP/1.0\r\n\r\n", b"200"),
            (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70000 + b"\r\n\r\n", b"431"),
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sock:
                sock.sendall(raw)
                assert sock.recv(12) == b"HTTP/1.1 " + status


async def test_a_box_that_is_lost_is_down_and_leaves_no_old_figures(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    import asyncio

    async with Proxy(real_sshd.port, random.Random(0)) as proxy:
        proxy.gentle = True
        known = rgt.folder / "known_hosts"
        known.write_text(
            f"[127.0.0.1]:{proxy.port} {(real_sshd.folder / 'host_key.pub').read_text()}"
        )
        rgt.describe([replace(lab, port=proxy.port, known_hosts=str(known))])
        context = serving(rgt)
        port = await asyncio.to_thread(context.__enter__)
        try:
            up = await asyncio.to_thread(until, port, "rgt_box_up", 1.0)
            await proxy.__aexit__()
            down = await asyncio.to_thread(until, port, "rgt_box_up", 0.0)
        finally:
            await asyncio.to_thread(context.__exit__, None, None, None)
    assert "rgt_disk_used_bytes" in up
    gone = up.keys() - down.keys()
    assert {"rgt_disk_used_bytes", "rgt_inodes_used", "rgt_training_processes"} <= gone
    assert down.keys() <= {
        "rgt_box_up", "rgt_box_state", "rgt_sample_age_seconds", "rgt_alert", "rgt_meter_per_hour",
        "rgt_meter_spent", "rgt_meter_age_seconds", "rgt_meter_per_hour_at_least", "rgt_meter_spent_at_least",
    }  # fmt: skip
    assert down["rgt_sample_age_seconds"][0][1] >= 0


def test_a_port_that_is_taken_is_said(rgt: Rgt, lab: BoxSpec) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = rgt.on("metrics", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (done.returncode, "choose another with --listen" in done.stderr) == (1, True)


def test_a_wrong_address_is_a_wrong_command_line(rgt: Rgt, lab: BoxSpec) -> None:
    done: subprocess.CompletedProcess[str] = rgt.on("metrics", "--listen", "9844")
    assert done.returncode == 2
    assert "ADDRESS:PORT" in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_server_has_one_socket(host: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        server = metrics.MetricsServer(host, 0, lambda: b"")
        gc.collect()
        socket.create_connection((host, server.port)).close()
        server.stop()
    assert not [one for one in seen if one.category is ResourceWarning]
