"""A stranger's repository with a fleet file: every command is run there, and nothing of it acts until it is trusted."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rgt_tui.cli import COMMANDS
from tests import warm_rgt
from tests.free_ports import free_port
from tests.pseudo_terminal import PseudoTerminal

PATIENCE = 120.0
SECRETS = {
    "RUNPOD_API_KEY": "canary-runpod",
    "GITHUB_TOKEN": "canary-github",
    "AWS_SECRET_ACCESS_KEY": "canary-aws",
    "MY_KEY": "canary-mine",
}
SHADOW = "open({canary!r}, 'a').close()\nraise SystemExit(99)\n"
MODULES = ("asyncssh", "httpx", "msgspec", "textual", "rgt_tui", "sitecustomize", "conftest")


@dataclass
class Ear:
    """What reaches this machine's ports: requests over HTTP, and bare connections."""

    requests: list[dict[str, str]] = field(default_factory=list)
    connections: int = 0
    http: int = 0
    tcp: int = 0


@pytest.fixture
def ear() -> Iterator[Ear]:
    heard = Ear()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            heard.requests.append(dict(self.headers))
            self.send_response(200)
            self.end_headers()

        do_GET = do_POST = answer  # noqa: N815 (the names of the standard library)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    bare = socket.create_server(("127.0.0.1", free_port()))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = bare.accept()
                heard.connections += 1  # before the close: whoever sees that may look at once
                connection.close()

    threading.Thread(target=accept, daemon=True).start()
    heard.http, heard.tcp = server.server_address[1], bare.getsockname()[1]
    yield heard
    server.shutdown()
    server.server_close()
    bare.close()


@dataclass
class Repository:
    """A clone of what somebody published, and the home of the person who cloned it."""

    folder: Path
    home: Path
    canaries: Path

    @property
    def file(self) -> Path:
        return self.folder / "rgt.toml"

    @property
    def sprung(self) -> list[str]:
        return sorted(path.name for path in self.canaries.iterdir())

    def environment(self, **more: str) -> dict[str, str]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("RGT_", "XDG_", "SSH_AUTH", "PYTHON"))
        }
        return {
            **kept,
            "HOME": str(self.home),
            "COLUMNS": "120",
            "TERM": "xterm-256color",
            **SECRETS,
            **more,
        }

    def command(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).parent / "rgt"), *words]

    def rgt(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return warm_rgt.rgt(*words, cwd=self.folder, env=self.environment(**more), timeout=PATIENCE)

    def cold_rgt(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Start all of it: from where it imports is what the test asks."""
        return subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    def at_a_terminal(self, *words: str) -> PseudoTerminal:
        return PseudoTerminal(self.command(*words), cwd=self.folder, env=self.environment())


@pytest.fixture
def repository(tmp_path: Path, ear: Ear) -> Repository:
    folder, home, canaries = tmp_path / "clone", tmp_path / "home", tmp_path / "canaries"
    for path in (folder / ".git", home, canaries):
        path.mkdir(parents=True)

    def touch(name: str) -> str:
        return f"touch {canaries / name}"

    (folder / "ssh_config").write_text(
        f'Match exec "{touch("match-exec")}"\n'
        f"Host *\n  ProxyCommand {touch('proxy-command')}\n  KnownHostsCommand {touch('known-hosts-command')}\n"
    )
    for name in ("id", "known_hosts", "config"):
        (folder / name).write_text((folder / "ssh_config").read_text())
    (folder / "hook").write_text(f"http://127.0.0.1:{ear.http}/hook\n")
    (folder / "notify.sh").write_text(f"#!/bin/sh\n{touch('script')}\n")
    (folder / "notify.sh").chmod(0o755)
    for module in MODULES:  # of what is imported nothing may come from here
        (folder / f"{module}.py").write_text(
            SHADOW.format(canary=str(canaries / f"import-{module}"))
        )
    box = (
        'profile = "runpod"\nlogs = ["~/.ssh/*"]\njobs = ["~"]\nruns = ["/**"]\npattern = "(a+)+$"\nmounts = ["/"]\n'
        f'durable = "/"\ninterval = 0.05\npython = "{canaries / "python"}"\ngpu_trace = "/etc/passwd"\n'
    )
    keys = [("RUNPOD_API_KEY", "r"), ("AWS_SECRET_ACCESS_KEY", "a"), ("MY_KEY", "m")]
    tables = [
        f'[boxes.key-{name}]\nhost = "127.0.0.1"\nport = {ear.tcp}\nssh_config = "none"\n'
        f'profile = "runpod"\n[boxes.key-{name}.provider]\n'
        f'kind = "runpod"\ninstance = "pod"\nbase_url = "http://127.0.0.1:{ear.http}"\nkey_env = "{key}"\n'
        for key, name in keys
    ]
    sinks = [
        f'kind = "command"\nargv = ["/bin/sh", "-c", "{touch("sink")}"]',
        'kind = "command"\nname = "script"\nargv = ["./notify.sh"]',
        'kind = "webhook"\nurl_file = "hook"\ntoken_env = "GITHUB_TOKEN"',
        f'kind = "ntfy"\nurl_file = "{folder}/hook"\ntoken_env = "MY_KEY"',
    ]
    (folder / "rgt.toml").write_text(
        f'[boxes.exec]\nhost = "evil"\nssh_config = "ssh_config"\nidentity = "id"\nknown_hosts = "known_hosts"\n{box}'
        f'[boxes.plain]\nhost = "127.0.0.1"\nport = {ear.tcp}\nuser = "root"\n'
        + "".join(tables)
        + "[alerts.unreachable]\nhold_s = 0\n"
        + "".join(f"[[sinks]]\n{sink}\n" for sink in sinks)
    )
    return Repository(folder, home, canaries)


REFUSED = {
    "patrol": ("patrol", "--timeout", "5"),
    "watch": ("watch", "--for", "6"),
    "serve": ("serve", "--port", "8123"),
    "metrics": ("metrics", "--once", "--timeout", "5"),
    "alerts": ("alerts", "test"),
    "mirrors": ("mirrors", "exec"),
    "secret": ("secret", "exec", "--list"),
    "push": ("push", "--trainer", "exec", "--timeout", "5"),
    "remove": ("remove", "exec", "--yes", "--forget", "--timeout", "5"),
    "mute": ("mute", "exec"),
    "pull": ("pull", "exec", "--timeout", "5"),
    "check-box": ("check-box", "exec", "--timeout", "5"),
    "tunnel": ("tunnel", "exec", "6006"),
    "code": ("code", "exec"),
    "queue": ("queue", "exec", "status", "--job", "x"),
    "run": ("run", "exec", "--", "true"),
    "ssh": ("ssh", "exec", "--timeout", "5"),
    "exec": ("exec", "exec", "--timeout", "5", "--", "true"),
    "gpu-health": ("gpu-health", "exec", "--timeout", "5"),
    "reap": ("reap", "exec", "--timeout", "5"),
    "grep": ("grep", "exec", "x", "/tmp", "--timeout", "5"),
    "manifest": ("manifest", "exec", "/tmp", "--timeout", "5"),
    "mirror": ("mirror", "exec", "/tmp/a", "/tmp/b", "--timeout", "5"),
    "stop": ("stop", "exec", "a-run", "--yes"),
    "bid": ("bid", "exec", "0.5", "--dry-run"),
    "up": ("up", "mine", "--gpu", "A100", "--dry-run"),
    "down": ("down", "exec", "--destroy", "--dry-run", "--timeout", "5"),
    "autostop": ("autostop", "exec", "--idle", "45m", "--dry-run", "--timeout", "5"),
    "lease": ("lease", "exec", "8h", "--dry-run", "--timeout", "5"),
    "keep": ("keep", "exec", "2h"),
    "notify": ("notify", "exec", "--status"),
}
"""Commands whose work is to tell somebody, or to change a box: they end at once, and name what to do."""
LOADING = {
    **REFUSED,
    "status": ("status", "--timeout", "5"),
    "night": ("night", "--timeout", "5"),
    "journal": ("journal",),
    "doctor": ("doctor", "--timeout", "5"),
    "logs": ("logs", "exec", "--timeout", "5"),
    "curves": ("curves", "exec", "--timeout", "5"),
    "record": ("record", "--out", "new.jsonl", "--for", "4"),
    "trust": ("trust",),
}
WRITING = {"add": ("add", "mine", "lab"), "import": ("import", "--write"), "init": ("init",)}
OTHERS = {
    "replay": ("replay", "rgt.toml", "--headless"),
    "scalars": ("scalars", "."),
    "smoke": ("smoke", "--", "true"),
    "demo": ("demo", "--fleet-only"),
    "agent": ("agent", "build", "--out", "agent.pyz"),
    "audit": ("audit",),
    "receipt": ("receipt",),
    "profiles": ("profiles", "clocks"),
    "verify": ("verify", "."),
    "triage": ("triage", "rgt.toml"),
    "handbook": ("handbook", "U7"),
    "completion": ("completion", "bash"),
}
ALL = {**LOADING, **WRITING, **OTHERS}
ALIKE = {*REFUSED} - {
    "patrol",
    "serve",
    "alerts",
    "push",
    "pull",
    "ssh",
    "run",
    "up",
    "down",
    "autostop",
}
"""They open the fleet by the same function as one of these, and import nothing that those do not."""


def test_every_command_is_run_here() -> None:
    assert set(ALL) == set(COMMANDS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in ALIKE else ()) for name in ALL]
)
def test_nothing_of_a_stranger_s_repository_acts(
    name: str, repository: Repository, ear: Ear
) -> None:
    done = repository.cold_rgt(*ALL[name])
    said = done.stdout + done.stderr
    assert (repository.sprung, ear.requests, ear.connections) == ([], [], 0), said
    assert "canary" not in said
    assert "Traceback" not in said, said
    if name in LOADING and name != "trust":
        assert "rgt trust" in said, said
    if name in REFUSED:
        assert (done.returncode, done.stdout) == (2, "")
    assert not (repository.home / ".ssh").exists()
    kept = {path.name for path in (repository.home / ".local/state/rgt").glob("*")}
    allowed = {"trust.json", "trust.json.lock"} if name in WRITING else set()
    if name in WRITING or name == "record":  # what rgt wrote here is never pushed as code
        allowed |= {"written.json", "written.json.lock"}
    assert kept <= allowed, kept


def test_the_same_repository_acts_once_it_is_trusted(repository: Repository, ear: Ear) -> None:
    """Without this, a fault of the trap would look like safety."""
    assert repository.rgt("trust", "--yes").returncode == 0
    said = repository.rgt("status", "--timeout", "60")
    assert "rgt trust" not in said.stderr
    assert {"match-exec", "proxy-command"} <= set(repository.sprung)
    assert not {"sink", "script"} & set(repository.sprung)
    assert {request.get("Authorization") for request in ear.requests} == {
        f"Bearer {SECRETS[name]}" for name in ("MY_KEY", "RUNPOD_API_KEY")
    }
    assert ear.connections
    assert repository.rgt("alerts", "test").returncode == 0
    assert {"sink", "script"} <= set(repository.sprung)
    assert {request.get("Authorization") for request in ear.requests} >= {"Bearer canary-github"}


def test_the_dashboard_says_it_in_a_line_of_its_own(repository: Repository, ear: Ear) -> None:
    with repository.at_a_terminal() as person:
        person.until("this fleet file is not trusted")
        person.until("is not connected")
        person.type("\x11")
        assert person.ended() == 0
    assert (repository.sprung, ear.requests, ear.connections) == ([], [], 0)


def test_a_shell_that_completes_runs_nothing(repository: Repository, ear: Ear) -> None:
    line = "rgt status "
    done = subprocess.run(
        ["/bin/bash", "-c", f"exec {shlex.quote(repository.command()[0])} 8>&1 9>&2"],
        cwd=repository.folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
        env=repository.environment(_ARGCOMPLETE="1", COMP_LINE=line, COMP_POINT=str(len(line)), IFS="\013"),
    )  # fmt: skip
    assert "exec" in done.stdout + done.stderr
    assert (repository.sprung, ear.requests, ear.connections) == ([], [], 0)


def test_a_host_of_the_person_s_own_ssh_config_is_reached_as_that_says_and_not_as_the_file_says(
    repository: Repository, ear: Ear
) -> None:
    own = repository.home / ".ssh"
    own.mkdir(mode=0o700)
    (own / "config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {ear.tcp}\n  User me\nHost *\n  ProxyCommand none\n"
    )
    repository.file.write_text(
        f'[boxes.mine]\nhost = "lab"\nport = 1\nuser = "root"\npython = "{repository.canaries}/python"\n'
        '[boxes.any]\nhost = "127.0.0.1"\n'
    )
    done = repository.rgt("status", "--json", "--timeout", "60")
    lines = {line["box"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert ear.connections
    assert f"127.0.0.1:{ear.tcp}" in lines["mine"]["reason"]
    assert "root" not in lines["mine"]["reason"]
    assert "your ssh_config has no Host 127.0.0.1" in lines["any"]["reason"]


@pytest.mark.parametrize(
    "host",
    ["$(touch${IFS}x)", "x;id", "-oProxyCommand=id", "a`id`", "a b", "x|id", "x\\u0000", "a/b", ""],
)
def test_a_host_that_a_shell_could_obey_is_refused_before_ssh_config_is_read(
    repository: Repository, host: str
) -> None:
    own = repository.home / ".ssh"
    own.mkdir(mode=0o700)
    (own / "config").write_text(
        f'Match exec "cd {repository.canaries} && echo %n > asked"\n  User me\n'
    )
    repository.file.write_text(f'[boxes.x]\nhost = "{host}"\n'.replace("\\\\u", "\\u"))
    done = repository.rgt("--fleet", str(repository.file), "status", "--timeout", "5")
    assert (done.returncode, repository.sprung) == (2, [])


@pytest.mark.parametrize(
    "text",
    [
        '[boxes."\\u001b]0;x\\u0007\\u202e"]\nhost = "a"\n',
        '[boxes.a]\nhost = "a"\n[alerts."\\u001b[2J\\u202e"]\n',
        '[boxes.a]\nhost = "a"\n[boxes.a."\\u009b2J"]\nx = 1\n',
        '[boxes.a]\nhost = "a"\nssh_config = "./\\u001b[2J\\u202e"\n',
        '[boxes.a]\nhost = "a"\n[[sinks]]\nkind = "command"\nargv = ["./\\u001b[2J\\u202e"]\n',
    ],
)
def test_no_text_of_it_speaks_to_the_terminal(repository: Repository, text: str) -> None:
    repository.file.write_text(text)
    looks = [(name, "--timeout", "1") for name in ("status", "doctor")]
    for words in (
        *looks,
        ("trust", "--yes"),
        ("trust", "--list"),
        ("add", "new", "host"),
        ("patrol", "--timeout", "1"),
    ):
        done = repository.rgt(*words)
        said = done.stdout + done.stderr
        assert [char for char in said if not (char.isprintable() or char == "\n")] == [], (
            words,
            said,
        )


def test_what_changes_while_a_person_reads_is_not_trusted(repository: Repository) -> None:
    repository.file.write_text('[boxes.lab]\nhost = "lab"\n')
    with repository.at_a_terminal("trust") as person:
        person.until("Trust it?")
        with repository.file.open("a") as file:
            file.write('[[sinks]]\nkind = "command"\nargv = ["id"]\n')
        person.type("y\n")
        assert person.ended() == 0
    done = repository.rgt("patrol")
    assert done.returncode == 2
    assert "has changed since it was trusted" in done.stderr
    again = repository.rgt("trust")
    assert '+argv = ["id"]' in again.stdout
    assert "-host" not in again.stdout
    assert "runs id at an alert" in again.stdout
    assert again.returncode == 1


def test_what_is_not_answered_with_yes_is_not_trusted(repository: Repository) -> None:
    for answer in ("\n", "n\n", "\x04"):
        with repository.at_a_terminal("trust") as person:
            person.until("Trust it?")
            person.type(answer)
            assert person.ended() == 1
    assert not (repository.home / ".local/state/rgt/trust.json").exists()


def test_nothing_hides_from_the_person_who_reads(repository: Repository) -> None:
    repository.file.write_text(
        '[boxes.lab]\nhost = "lab"\n# \u202eharmless\u200b \x85 \u2028 x\ttab é\n[alerts.bytes]\nenabled = false\n'
    )
    shown = repository.rgt("trust").stdout
    assert r"# \u202eharmless\u200b \x85 \u2028 x    tab é" in shown
    assert "sets the limits of these alerts: bytes" in shown


@pytest.mark.parametrize("beside", ["ssh_config", "known_hosts", "hook", "notify.sh"])
def test_a_file_beside_it_that_changes_ends_the_trust(
    repository: Repository, ear: Ear, beside: str
) -> None:
    assert repository.rgt("trust", "--yes").returncode == 0
    with (repository.folder / beside).open("a") as file:
        file.write("# pulled\n")
    done = repository.rgt("patrol")
    assert done.returncode == 2
    assert f"names {repository.folder / beside}, which has changed" in done.stderr
    assert (repository.sprung, ear.requests) == ([], [])
    shown = repository.rgt("trust").stdout
    assert "+# pulled" in shown
    assert "rgt.toml" not in shown.partition("Trusted, it")[0], "that one has not changed"


def test_trust_is_of_one_path(repository: Repository, tmp_path: Path) -> None:
    assert repository.rgt("trust", "--yes").returncode == 0
    other = Repository(tmp_path / "other", repository.home, repository.canaries)
    (other.folder / ".git").mkdir(parents=True)
    other.file.write_bytes(repository.file.read_bytes())
    assert other.rgt("patrol").returncode == 2
    link = Repository(tmp_path / "link", repository.home, repository.canaries)
    (link.folder / ".git").mkdir(parents=True)
    link.file.symlink_to(other.file)
    assert link.rgt("patrol").returncode == 2


def test_list_and_revoke(repository: Repository) -> None:
    assert repository.rgt("trust", "--list").stdout == ""
    assert repository.rgt("trust", "--revoke").returncode == 1
    assert repository.rgt("trust", "--yes").returncode == 0
    assert str(repository.file) in repository.rgt("trust", "--list").stdout
    state = repository.home / ".local/state/rgt/trust.json"
    assert (state.stat().st_mode & 0o777, state.stat().st_uid) == (0o600, os.geteuid())
    (listed,) = map(json.loads, repository.rgt("trust", "--list", "--json").stdout.splitlines())
    assert (listed["path"], listed["trusted"]) == (str(repository.file), True)
    repository.file.unlink()
    (gone,) = map(json.loads, repository.rgt("trust", "--list", "--json").stdout.splitlines())
    assert (gone["trusted"], "No such file" in gone["why"]) == (False, True)
    assert repository.rgt("trust", "--revoke", str(repository.file)).returncode == 0
    assert repository.rgt("trust", "--list").stdout == ""


def test_what_rgt_writes_stays_trusted_if_it_was(repository: Repository) -> None:
    repository.file.unlink()
    assert repository.rgt("init").returncode == 0
    for name in ("one", "two"):
        done = repository.rgt("add", name, f"{name}-host", "--identity", "id")
        assert (done.returncode, done.stderr) == (0, "")
    assert "rgt trust" not in repository.rgt("status", "--timeout", "5").stderr
    with repository.file.open("a") as file:
        file.write("# by hand\n")
    assert repository.rgt("add", "three", "three-host").stderr == ""
    with repository.file.open("a") as file:
        file.write('[boxes.four]\nhost = "four-host"\n')
    done = repository.rgt("add", "five", "five-host")
    assert done.returncode == 0
    assert "was not trusted before, and still is not: rgt trust" in done.stderr
    assert repository.rgt("patrol").returncode == 2


def test_a_file_that_is_named_is_trusted_by_that(repository: Repository) -> None:
    repository.file.write_text('[boxes.none]\nhost = "nowhere.invalid"\nssh_config = "none"\n')
    for done in (
        repository.rgt("patrol", "--fleet", "rgt.toml", "--timeout", "20"),
        repository.rgt("patrol", "--timeout", "20", RGT_FLEET=str(repository.file)),
    ):
        assert "rgt trust" not in done.stderr
        assert "nowhere.invalid" in done.stdout


def test_a_link_that_leads_nowhere_is_not_written_through(repository: Repository) -> None:
    repository.file.unlink()
    target = repository.home / "made-by-a-link"
    repository.file.symlink_to(target)
    assert repository.rgt("init").returncode == 1
    assert repository.rgt("add", "lab", "lab").returncode == 1
    assert not target.exists()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


@pytest.mark.parametrize("how", ["lies there", "named", "own"])
@pytest.mark.parametrize(
    ("mode", "cure"), [(0o646, "chmod go-w "), (0o666, "chmod go-w "), (0o664, "chmod g-w ")]
)
def test_a_file_that_others_may_write_is_refused_with_the_chmod(
    repository: Repository, how: str, mode: int, cure: str
) -> None:
    place, words = placed(repository, how)
    place.chmod(mode)
    if mode == 0o664:
        if os.geteuid() != 0:
            pytest.skip("gives files away")
        os.chown(place, 0, 65534)
    done = repository.rgt(*words, "status", "--timeout", "5")
    assert done.returncode == 2
    assert f"{cure}{place}" in done.stderr, done.stderr
    assert repository.sprung == []
    subprocess.run(f"{cure}{place}", shell=True, check=True)
    assert cure not in repository.rgt(*words, "status", "--timeout", "5").stderr


def placed(repository: Repository, how: str) -> tuple[Path, tuple[str, ...]]:
    place = repository.home / ".config/rgt/fleet.toml" if how == "own" else repository.file
    place.parent.mkdir(parents=True, exist_ok=True)
    if how == "own":
        repository.file.unlink()
    place.write_text('[boxes.none]\nhost = "nowhere.invalid"\nssh_config = "none"\n')
    return place, (("--fleet", str(place)) if how == "named" else ())


@needs_root
@pytest.mark.parametrize("how", ["lies there", "named", "own"])
def test_a_file_of_another_user_is_refused(repository: Repository, how: str) -> None:
    place, words = placed(repository, how)
    os.chown(place, 65534, 65534)
    done = repository.rgt(*words, "status", "--timeout", "5")
    assert done.returncode == 2
    assert f"{place} belongs to nobody, not to you" in done.stderr
    assert f"if you know what is in it, chown root {place}" in done.stderr


@needs_root
@pytest.mark.parametrize("what", ["file", "directory", "owner", "link"])
def test_what_is_trusted_is_not_believed_where_others_may_write_it(
    repository: Repository, what: str
) -> None:
    assert repository.rgt("trust", "--yes").returncode == 0
    book = repository.home / ".local/state/rgt/trust.json"
    if what == "file":
        book.chmod(0o666)
    elif what == "directory":
        book.parent.chmod(0o777)
    elif what == "owner":
        os.chown(book, 65534, 65534)
    else:
        book.rename(book.with_name("real"))
        book.symlink_to("real")
    done = repository.rgt("patrol")
    assert done.returncode == 2
    assert "trusted" in done.stderr
    assert repository.sprung == []


@needs_root
def test_a_private_group_and_root_are_nobody_else(repository: Repository) -> None:
    place, _ = placed(repository, "lies there")
    os.chown(place, 0, 0)
    place.chmod(0o664)
    assert "chmod" not in repository.rgt("status", "--timeout", "5").stderr
