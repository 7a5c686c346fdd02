"""`rgt tunnel` carries bytes over a real sshd and outlives its connection; what `rgt code` prints leads there."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import fresh_sshd
from tests.free_ports import free_port
from tests.process.box.harness import until


@contextmanager
def echoing() -> Iterator[int]:
    """Listen, as a service on the box does, and send back in capitals what comes; the box is this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection:
                data = b""
                while piece := connection.recv(65536):
                    data += piece
                connection.sendall(data.upper())

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def ask(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


@contextmanager
def tunnel(
    rgt: Rgt, *words: str, count: int = 1
) -> Iterator[tuple[subprocess.Popen[bytes], list[dict[str, Any]]]]:
    process = rgt.start("tunnel", "lab", "--json", *words)
    assert process.stdout is not None and process.stderr is not None
    try:
        yield process, [json.loads(process.stdout.readline()) for _ in range(count)]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_bytes_go_through_and_a_taken_port_is_another_one(rgt: Rgt, lab: BoxSpec) -> None:
    with echoing() as port, tunnel(rgt, str(port)) as (process, (told,)):
        assert (
            told["wanted"] == port and told["local"] != port
        )  # the service itself has it: the box is this machine
        assert told["url"] == f"http://127.0.0.1:{told['local']}/"
        data = b"loss curve " * 100_000
        assert ask(told["local"], data) == data.upper()
        assert ask(told["local"], b"again") == b"AGAIN"
        with socket.socket() as other:
            assert other.connect_ex(
                (socket.gethostbyname(socket.gethostname()), told["local"])
            ) != 0 or (socket.gethostbyname(socket.gethostname()).startswith("127."))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_the_port_outlives_the_connection(rgt: Rgt, lab: BoxSpec) -> None:
    with echoing() as port, tunnel(rgt, f"{free_port()}:{port}") as (process, (told,)):
        assert ask(told["local"], b"one") == b"ONE"
        # All sessions of this sshd end but the one that ends them; its listener goes on.
        line = "for p in $(pgrep -P $(ps -o ppid= -p $PPID)); do [ $p = $PPID ] || kill -9 $p; done"
        assert rgt.on("exec", "lab", "--", line).returncode == 0

        def carried() -> bool:
            try:
                return ask(told["local"], b"two") == b"TWO"
            except OSError:
                return False

        until(carried)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0
        assert b"the ports stay" in said and b"connected again" in said, said


def test_socks_and_what_does_not_listen(rgt: Rgt, lab: BoxSpec) -> None:
    with (
        echoing() as port,
        tunnel(rgt, f"socks:{free_port()}", f"{free_port()}:{free_port()}", count=2) as (
            process,
            told,
        ),
    ):
        socks, dead = told
        assert socks["url"] == f"socks5://127.0.0.1:{socks['local']}"
        with socket.create_connection(("127.0.0.1", socks["local"]), timeout=60) as connection:
            connection.sendall(b"\x05\x01\x00")
            assert connection.recv(2) == b"\x05\x00"
            connection.sendall(b"\x05\x01\x00\x03\x09127.0.0.1" + port.to_bytes(2, "big"))
            assert connection.recv(10)[:2] == b"\x05\x00"
            connection.sendall(b"by name")
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b"BY NAME"
        try:
            assert ask(dead["local"], b"x") == b""
        except OSError as error:  # closed before or after the bytes came
            assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert b"is anything listening there?" in said


def test_a_pasted_command_keeps_its_tunnels(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("add", "vast", "ssh -p 40022 root@203.0.113.9 -L 8080:localhost:8080 -D 1080")
    assert done.returncode == 0, done.stderr
    table = tomllib.loads(rgt.fleet.read_text())["boxes"]["vast"]
    assert table["tunnels"] == ["8080:localhost:8080", "socks:1080"]
    with echoing() as port:
        rgt.describe([msgspec.structs.replace(lab, tunnels=(f"{free_port()}:localhost:{port}",))])
        with tunnel(rgt) as (_, (told,)):
            assert ask(told["local"], b"kept") == b"KEPT"


def test_what_cannot_be_carried(rgt: Rgt, lab: BoxSpec) -> None:
    none = rgt.on("tunnel", "lab")
    assert none.returncode == 2 and "which port?" in none.stderr
    wrong = rgt.on("tunnel", "lab", "http")
    assert wrong.returncode == 2 and "is no tunnel" in wrong.stderr
    rgt.describe([msgspec.structs.replace(lab, port=1)])
    assert rgt.on("tunnel", "lab", "6006").returncode == 3
    rgt.fleet.write_text('[boxes.lab]\nhost = "x"\ntunnels = ["0:1"]\n')
    bad = rgt.on("tunnel", "lab")
    assert bad.returncode == 2 and "rgt.toml" not in bad.stderr and "tunnels" in bad.stderr


def ssh(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
    command = ["ssh", "-F", str(file), "-o", "BatchMode=yes", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)


def test_the_block_leads_where_rgt_goes(rgt: Rgt, lab: BoxSpec) -> None:
    done = rgt.on("code", "lab", "--dir", "/work space/x")
    assert done.returncode == 0, done.stderr
    file = rgt.folder / "block"
    file.write_text(done.stdout.partition("\n\n")[0] + "\n")
    there = ssh(file, "rgt-lab", "echo $HOME")
    assert there.stdout.strip().endswith("/home"), there.stderr
    assert "code --folder-uri vscode-remote://ssh-remote+rgt-lab/work%20space/x\n" in done.stdout
    assert not (rgt.folder / ".ssh").exists() and not (rgt.folder / ".config").exists()


def test_the_way_over_a_jump_host(rgt: Rgt, lab: BoxSpec, tmp_path: Path) -> None:
    (tmp_path / "gate").mkdir()
    config = rgt.folder / "my.conf"
    with fresh_sshd(tmp_path / "gate") as gate:
        text = ""
        for name, spec, more in (("gate", gate.spec, ""), ("inner", lab, "  ProxyJump gate\n")):
            text += (
                f"Host {name}\n  HostName 127.0.0.1\n  Port {spec.port}\n  User {spec.user}\n{more}"
            )
            text += f"  IdentityFile {spec.identity}\n  UserKnownHostsFile {spec.known_hosts}\n"
        config.write_text(text)
        rgt.describe([BoxSpec(name="lab", host="inner", ssh_config=str(config))])
        body = json.loads(rgt.on("code", "lab", "--json").stdout)
        assert "ProxyJump rgt-lab-via-1" in body["ssh_config"] and body["folder"].startswith("/")
        file = rgt.folder / "block"
        file.write_text(body["ssh_config"])
        assert ssh(file, "rgt-lab", "echo through").stdout == "through\n"


def test_writing_keeps_what_others_have(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([lab, msgspec.structs.replace(lab, name="twin")])
    for name in ("lab", "twin", "lab"):
        done = rgt.on("code", name, "--write")
        assert done.returncode == 0, done.stderr
    file = rgt.folder / ".config/rgt/ssh_config"
    assert f"Include {file}\n" in done.stdout
    text = file.read_text()
    assert (text.count("Host rgt-lab\n"), text.count("Host rgt-twin\n")) == (1, 1)
    assert file.stat().st_mode & 0o777 == 0o600
    for name in ("lab", "twin"):
        assert ssh(file, f"rgt-{name}", "echo there").stdout == "there\n"
    assert not (rgt.folder / ".ssh").exists()


def test_a_box_that_is_off_still_has_a_way(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(lab, port=1)])
    done = rgt.on("code", "lab")
    assert (
        done.returncode == 0
        and "Port 1\n" in done.stdout
        and "the connection from the fleet file" in done.stderr
    )
