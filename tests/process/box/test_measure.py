"""The ``measure`` verb: bounded in time, true about what fails, and nothing stays behind."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rgt_box.commands import measure

from tests.process.box.harness import Agent, pythons

FAKE = """
import os, time
__version__ = "2.9.0"
class version: cuda = "12.8"; hip = None
float16 = uint8 = None
class Tensor:
    def __init__(self, value=1.0, card=True): self.value, self.card = value, card
    def __matmul__(self, other):
        time.sleep(0.001)
        return Tensor(1.0 + (float(os.environ.get("FAKE_WRONG", "0")) if self.card else 0.0), self.card)
    def __getitem__(self, key): return self
    def __sub__(self, other): return Tensor(self.value - other.value)
    def __float__(self): return self.value
    def float(self): return self
    def cpu(self): return Tensor(self.value, False)
    def abs(self): return Tensor(abs(self.value))
    def max(self): return self
    def pin_memory(self): return self
    def copy_(self, other, non_blocking=False): time.sleep(0.001)
def randn(*size, **_): return Tensor()
empty = randn
def device(kind, index): return (kind, index)
class cuda:
    @staticmethod
    def init():
        if os.environ.get("FAKE_CUDA") == "broken":
            raise RuntimeError("CUDA driver initialization failed, you might not have a CUDA gpu.")
        if os.environ.get("FAKE_CUDA") == "hangs":
            time.sleep(600)
    @staticmethod
    def device_count(): return int(os.environ.get("FAKE_COUNT", "1"))
    @staticmethod
    def get_device_name(index): return "NVIDIA A100-SXM4-80GB"
    @staticmethod
    def synchronize(index):
        if os.environ.get("FAKE_CUDA") == "kernel":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/torch.py").write_text(FAKE)
    return {"PYTHONPATH": str(tmp_path / "fake")}


def measured(agent: Agent, *words: str, **env: str) -> dict[str, Any]:
    done = agent.run("measure", "--bytes", "8388608", *words, env=env)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("python", pythons(8, 13))
def test_a_box_without_gpu_torch_and_network_is_described(
    python: str, agent: Agent, tmp_path: Path
) -> None:
    agent.python = python
    report = measured(agent, "--dir", str(tmp_path), "--url", "http://127.0.0.1:1/x")
    assert (report["torch"], report["disk"]["error"]) == (None, None)
    assert report["disk"]["write_mbs"] > 0 and report["disk"]["read_mbs"] > 0
    assert report["disk"]["free"] > 0
    (net,) = report["net"]
    assert "refused" in net["error"]
    assert [path.name for path in tmp_path.iterdir() if "measure" in path.name] == []


def test_each_gpu_is_computed_on_and_copied_to(agent: Agent, fake: dict[str, str]) -> None:
    torch = measured(agent, "--python", sys.executable, **fake, FAKE_COUNT="2")["torch"]
    assert (torch["torch"], torch["error"], torch["built_for"], torch["count"]) == (
        "2.9.0",
        None,
        "12.8",
        2,
    )
    assert [one["device"] for one in torch["devices"]] == [0, 1]
    for one in torch["devices"]:
        assert one["name"] == "NVIDIA A100-SXM4-80GB"
        assert one["tflops"] > 0 and one["to_gpu_gbs"] > 0 and one["from_gpu_gbs"] > 0


@pytest.mark.parametrize(
    ("kind", "says"),
    [("broken", "CUDA driver initialization failed"), ("kernel", "illegal memory access")],
)
def test_cuda_that_fails_is_told(agent: Agent, fake: dict[str, str], kind: str, says: str) -> None:
    torch = measured(agent, "--python", sys.executable, **fake, FAKE_CUDA=kind)["torch"]
    words = torch["error"] or torch["devices"][0]["error"]
    assert words.startswith("RuntimeError: ") and says in words


def test_a_card_that_computes_wrongly_is_told(agent: Agent, fake: dict[str, str]) -> None:
    torch = measured(agent, "--python", sys.executable, **fake, FAKE_WRONG="0.5")["torch"]
    assert torch["devices"][0]["error"] == "the product of two matrices is wrong by 0.5"


def test_cuda_that_hangs_is_ended(agent: Agent, fake: dict[str, str]) -> None:
    begun = time.monotonic()
    torch = measured(
        agent, "--python", sys.executable, "--seconds", "1", **fake, FAKE_CUDA="hangs"
    )["torch"]
    assert torch["error"] == "not done within 5 s"
    assert time.monotonic() - begun < 60


def test_a_torch_that_cannot_be_imported_and_a_python_that_is_none(
    agent: Agent, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(
        "raise OSError('libcudart.so.12: cannot open shared object file')"
    )
    torch = measured(agent, "--python", sys.executable, PYTHONPATH=str(tmp_path))["torch"]
    assert (torch["torch"], "libcudart" in torch["error"]) == (None, True)
    (tmp_path / "torch.py").write_text("import os; os._exit(3)")
    torch = measured(agent, "--python", sys.executable, PYTHONPATH=str(tmp_path))["torch"]
    assert torch["error"].startswith("it ended with 3")
    assert "cannot be run" in measured(agent, "--python", "/no/python")["torch"]["error"]


def test_a_directory_that_cannot_be_written_is_told(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "none", tmp_path / "file"):
        assert measured(agent, "--dir", str(folder))["disk"]["error"].startswith(str(folder))


@pytest.fixture
def site() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = 404 if self.path == "/none" else 200
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"x" * (2 << 20))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_addresses_are_timed_and_any_answer_is_one(agent: Agent, site: str) -> None:
    net = measured(agent, "--url", f"{site}/big", "--url", f"{site}/none", "--url", "nonsense")[
        "net"
    ]
    assert [row.get("status") for row in net] == [200, 404, None]
    assert net[0]["bytes"] == 2 << 20 and net[0]["mbs"] > 0 and net[0]["first_byte_s"] >= 0
    assert "error" in net[2]


def test_addresses_are_reached_as_jobs_reach_them(agent: Agent, site: str, tmp_path: Path) -> None:
    """Through the platform's proxy, with its mirror; the server here is asked for a host that has no address."""
    proxy = site.replace("://", "://me:secret@")
    hook = tmp_path / "turbo"
    hook.write_text(f"export http_proxy={proxy}\n")
    told = {
        "env": {"HF_ENDPOINT": "http://hub.invalid"},
        "hooks": {"proxy": f". {hook}", "no_proxy": ["near.invalid"]},
    }
    words = ("measure", "--bytes", "8388608", "--platform", "--url", "http://near.invalid/x")
    env = {"http_proxy": "", "no_proxy": ""}
    report = json.loads(agent.run(*words, stdin=json.dumps(told).encode(), env=env).stdout)
    net = {row["url"]: row for row in report["net"]}
    hub, near = net["http://hub.invalid"], net["http://near.invalid/x"]
    assert (hub["status"], hub["proxy"]) == (200, site.partition("://")[2])
    assert near["proxy"] is None and "error" in near
    assert report["route_error"] is None
    assert "secret" not in json.dumps(report)
    # What a person has turned off is off here, too.
    off = {"for": ["proxy", "hf"], "env": {"hf": {"HF_ENDPOINT": "x"}}}
    assert agent.run("mirrors", "off", stdin=json.dumps(off).encode()).returncode == 0
    report = json.loads(agent.run(*words, stdin=json.dumps(told).encode(), env=env).stdout)
    assert [(row["url"], row["proxy"]) for row in report["net"]] == [
        ("http://near.invalid/x", None),
        ("https://huggingface.co/", None),
    ]


def test_a_hook_that_fails_is_told_and_the_addresses_are_tried_without_it(
    agent: Agent, site: str
) -> None:
    told = {"env": {"HF_ENDPOINT": site}, "hooks": {"proxy": "false"}}
    done = agent.run("measure", "--bytes", "8388608", "--platform", stdin=json.dumps(told).encode())
    report = json.loads(done.stdout)
    assert report["route_error"] == "rgt: the platform's hook failed: false (exit 1)"
    assert [row.get("status") for row in report["net"]] == [200]


def test_the_index_is_that_of_the_box_s_own_pip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    found = measure.find_package_index(sys.executable)
    assert found in (None, "https://mirror.example/simple")  # None where this Python has no pip
    assert measure.find_package_index("/no/python") is None
    assert os.environ["PIP_INDEX_URL"]
