"""What is trusted, by path and by content, and what a file that is not may say."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

import msgspec
import pytest

from rgt_tui import files
from rgt_tui.fleet.config import FleetConfig, FleetFileError, FleetFilePlace, open_place, trusted
from rgt_tui.fleet.config.editing import add_boxes
from rgt_tui.fleet.config.loading import MAX_BYTES, FleetFileSource, parse_fleet, read_source
from rgt_tui.fleet.config.trusted import SeenFile, TrustBook, TrustedEntry
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import ConfigError, resolve_hops

FULL = """
[boxes.lab]
host = "lab-a100"
port = 22
user = "root"
profile = "runpod"
identity = "id"
known_hosts = "known"
ssh_config = "cfg"
mounts = ["/"]
jobs = ["~/j"]
logs = ["~/l"]
runs = ["~/r"]
durable = "/d"
tiers = { "/" = "system" }
python = "/tmp/python"
gpu_trace = "/etc/passwd"
interval = 0.1
pattern = "x"
per_hour = 1.5
currency = "CNY"
results = ["/r"]
ignore = ["/i"]
protected = true
asked = { spot = true }
tunnels = ["6006"]
idle_if = "no-progress"
env = { WANDB_ENTITY = "lab" }
[boxes.lab.provider]
kind = "runpod"
instance = "pod"
base_url = "https://evil.example"
key_env = "KEY"
[alerts.bytes]
enabled = false
[[sinks]]
kind = "command"
argv = ["./run.sh", "beside", "-x", "away"]
[[sinks]]
kind = "webhook"
url_file = "hook"
token_env = "TOKEN"
[[sinks]]
kind = "ntfy"
url_env = "TOPIC"
[[sinks]]
kind = "bell"
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / ".git").mkdir(parents=True)
    for name in ("cfg", "known", "hook", "run.sh", "beside", "id"):
        (folder / name).write_text(f"{name}\n")
    (folder / "rgt.toml").write_text(FULL)
    return folder / "rgt.toml"


def opened(file: Path, env: dict[str, str]) -> FleetConfig:
    return open_place(FleetFilePlace(file, lies_there=True), env)


def trust(file: Path, env: dict[str, str]) -> TrustedEntry:
    source = read_source(file)
    config = trusted.with_absolute_paths(parse_fleet(file, source.text), file.parent, env)
    entry = trusted.build_entry(source, config, env, 5.0)
    trusted.trust_file(trusted.default_path(env), source.real, entry)
    return entry


def test_of_a_box_that_nobody_has_trusted_the_name_the_host_and_the_price_count(
    file: Path, env: dict[str, str]
) -> None:
    whole = open_place(FleetFilePlace(file), env)
    assert whole.doubt is None
    plain = BoxSpec(name="lab", host="lab-a100")
    left = [
        key
        for key in BoxSpec.__struct_fields__
        if getattr(whole.boxes[0], key) == getattr(plain, key)
    ]
    assert left == ["name", "host", "kubectl", "untrusted"], "the trap lacks a key"
    config = opened(file, env)
    assert config.boxes == (
        BoxSpec(name="lab", host="lab-a100", per_hour=1.5, currency="CNY", untrusted=True),
    )
    assert (config.alerts.kinds, config.alerts.sinks) == ({}, ())
    assert config.doubt == f"{file} is not trusted; review and trust it: rgt trust {file}"
    trust(file, env)
    assert opened(file, env) == whole


HARMLESS = {
    "per_hour = 1.5": "per_hour = 2.5",
    'currency = "CNY"': 'currency = "USD"',
    'mounts = ["/"]': 'mounts = ["/", "/data"]',
    'jobs = ["~/j"]': 'jobs = ["~/j", "~/k"]',
    'logs = ["~/l"]': "",
    'runs = ["~/r"]': "",
    'pattern = "x"': 'pattern = "train"',
    "interval = 0.1": "# a comment",
    "asked = { spot = true }": "asked = { spot = true, max_per_hour = 2.0 }",
    "[alerts.bytes]\nenabled = false": "[alerts.bytes]\nwarn = 70",
}
"""Edits of a trusted file after which it still counts."""


def test_an_edit_that_runs_nothing_and_sends_no_key_needs_no_other_review(
    file: Path, env: dict[str, str]
) -> None:
    trust(file, env)
    for before, after in HARMLESS.items():
        assert before in FULL
        file.write_text(FULL.replace(before, after))
        config = opened(file, env)
        assert config == open_place(FleetFilePlace(file), env), (before, config.doubt)


def test_an_edit_of_any_other_key_ends_the_trust_and_is_named(
    file: Path, env: dict[str, str]
) -> None:
    trust(file, env)
    changed = {
        "host": FULL.replace("lab-a100", "elsewhere"),
        "port": FULL.replace("port = 22", "port = 23"),
        "user": FULL.replace('user = "root"', 'user = "me"'),
        "profile": FULL.replace('"runpod"', '"vastai"'),
        "identity": FULL.replace('identity = "id"', ""),
        "known_hosts": FULL.replace('known_hosts = "known"', ""),
        "ssh_config": FULL.replace('ssh_config = "cfg"', ""),
        "durable": FULL.replace('"/d"', '"/e"'),
        "tiers": FULL.replace('tiers = { "/" = "system" }', ""),
        "python": FULL.replace("/tmp/python", "/tmp/other"),
        "gpu_trace": FULL.replace("/etc/passwd", "/etc/group"),
        "results": FULL.replace('"/r"', '"/s"'),
        "ignore": FULL.replace('"/i"', '"/i", "/root"'),
        "protected": FULL.replace("protected = true", ""),
        "tunnels": FULL.replace("6006", "7007"),
        "env": FULL.replace('"lab" }', '"other" }'),
        "idle_if": FULL.replace('"no-progress"', '"no-progress=1m"'),
        "provider": FULL.replace("evil.example", "other.example"),
    }
    acting = (
        set(BoxSpec.__struct_fields__)
        - set(trusted.REVIEWED_ONCE)
        - {"name", "untrusted", "kubectl"}
    )
    assert set(changed) == acting, "a key of a box is neither free nor reviewed here"
    for key, text in changed.items():
        file.write_text(text)
        doubt = opened(file, env).doubt or ""
        assert f"has changed since it was trusted (boxes.lab.{key}" in doubt, (key, doubt)
    file.write_text(FULL.replace("away", "here"))
    assert "(sinks)" in (opened(file, env).doubt or "")
    file.write_text(FULL.replace("[boxes.lab]", '[boxes.other]\nhost = "other"\n[boxes.lab]'))
    assert "(boxes.other is new)" in (opened(file, env).doubt or "")


def test_a_pod_of_a_file_that_nobody_has_trusted_is_not_reached(
    file: Path, env: dict[str, str]
) -> None:
    pod = '[boxes.lab.kubectl]\ncontext = "prod"\nnamespace = "ml"\npod = "a"\n'
    file.write_text(pod)
    (spec,) = opened(file, env).boxes
    assert (spec.kubectl, spec.provider, spec.host) == (None, None, "ml/a")
    with pytest.raises(ConfigError, match="the fleet file is not trusted"):
        resolve_hops(spec)
    trust(file, env)
    assert opened(file, env).boxes[0].kubectl is not None
    file.write_text(pod.replace("prod", "other"))
    assert "has changed since it was trusted" in (opened(file, env).doubt or "")


def test_relative_paths_are_those_of_the_file(file: Path, env: dict[str, str]) -> None:
    config = open_place(FleetFilePlace(file), env)
    (spec,), folder = config.boxes, file.parent
    assert (spec.identity, spec.known_hosts, spec.ssh_config) == (
        f"{folder}/id", f"{folder}/known", f"{folder}/cfg",
    )  # fmt: skip
    command, hook, *_ = config.alerts.sinks
    assert command.argv == (f"{folder}/run.sh", f"{folder}/beside", "-x", "away")
    assert hook.url_file == f"{folder}/hook"


@pytest.mark.parametrize("path", ["/abs", "~/x", "~root/x", "%d/x", "${HOME}/x", "none"])
def test_other_paths_stay_as_they_are(tmp_path: Path, path: str) -> None:
    box = f"[boxes.a]\nhost = 'a'\nssh_config = '{path}'\n"
    text = box + "[[sinks]]\nkind = 'command'\nargv = ['notify', '~/x', '/y', '']"
    config = trusted.with_absolute_paths(parse_fleet(tmp_path / "f", text), tmp_path, {})
    assert config.boxes[0].ssh_config == path
    assert config.alerts.sinks[0].argv == ("notify", "~/x", "/y", "")


def test_a_person_reads_what_it_would_do(file: Path, env: dict[str, str]) -> None:
    folder = file.parent
    assert trusted.list_local_actions(open_place(FleetFilePlace(file), env)) == (
        f"uses the ssh_config {folder}/cfg, which may run programs (lab)",
        f"logs in with the key {folder}/id (lab)",
        f"trusts the host keys in {folder}/known (lab)",
        "runs /tmp/python on the box (lab)",
        "sends $KEY to https://evil.example, and can stop the instance pod (lab)",
        "sets the limits of these alerts: bytes",
        f"runs {folder}/run.sh {folder}/beside -x away at an alert",
        f"sends alerts to the address in {folder}/hook, with $TOKEN",
        "sends alerts to the address in $TOPIC",
        "sends alerts by bell",
    )
    plain = parse_fleet(file, '[boxes.a]\nhost = "a"\nssh_config = "none"\n')
    assert trusted.list_local_actions(plain) == ()


def test_what_it_names_in_its_own_tree_is_trusted_with_it(file: Path, env: dict[str, str]) -> None:
    folder = file.parent
    entry = trust(file, env)
    assert {Path(path).name for path in entry.beside} == {
        "cfg",
        "known",
        "hook",
        "run.sh",
        "beside",
    }
    assert entry.beside[f"{folder}/cfg"].text == "cfg\n"
    (folder / "cfg").write_text("other")
    assert f"names {folder}/cfg, which has changed" in (opened(file, env).doubt or "")
    (folder / "cfg").unlink()
    assert opened(file, env).doubt is not None
    (folder / "cfg").write_text("cfg\n")
    assert opened(file, env).doubt is None
    (folder / "away").write_text("x")
    assert opened(file, env).doubt is not None, "an argument that is a file now"


def test_what_lies_elsewhere_is_the_person_s_own(tmp_path: Path, env: dict[str, str]) -> None:
    home = Path(env["HOME"])
    (home / ".ssh").mkdir()
    (home / ".ssh/lab").write_text("x")
    text = '[boxes.a]\nhost = "a"\nssh_config = "~/.ssh/lab"\n'
    for folder in (tmp_path / "clone", home):
        folder.mkdir(exist_ok=True)
        (folder / "rgt.toml").write_text(text)
        assert trust(folder / "rgt.toml", env).beside == {}
    (home / "cfg").write_text("x")  # a home directory is no tree of somebody else's
    (home / "rgt.toml").write_text('[boxes.a]\nhost = "a"\nssh_config = "cfg"\n')
    assert trust(home / "rgt.toml", env).beside == {}


def test_a_link_and_the_parents_of_a_path_lead_out_of_no_check(
    file: Path, env: dict[str, str]
) -> None:
    folder = file.parent
    (folder / "sub").mkdir()
    os.symlink("/etc/hostname", folder / "link")
    file.write_text('[boxes.a]\nhost = "a"\nssh_config = "sub/../cfg"\nknown_hosts = "link"\n')
    assert {Path(path).name for path in trust(file, env).beside} == {"cfg", "link"}
    (folder / "link").unlink()
    (folder / "link").symlink_to("cfg")
    assert "link, which has changed" in (opened(file, env).doubt or "")


def test_a_pipe_a_directory_and_a_huge_file_beside_it_do_not_hang_it(
    file: Path, env: dict[str, str]
) -> None:
    folder = file.parent
    (folder / "cfg").unlink()
    os.mkfifo(folder / "cfg")
    (folder / "known").unlink()
    (folder / "known").mkdir()
    (folder / "hook").write_bytes(b"a" * (trusted.MAX_BESIDE + 1))
    (folder / "beside").write_bytes(b"a" * trusted.MAX_BESIDE)
    (folder / "run.sh").write_bytes(b"\xff\x00")
    beside = {Path(path).name: seen for path, seen in trust(file, env).beside.items()}
    assert beside["cfg"] == beside["known"] == SeenFile("")
    assert beside["hook"].text == beside["run.sh"].text == ""
    assert beside["beside"].text
    assert beside["hook"].sha256 != beside["beside"].sha256
    assert opened(file, env).doubt is None


def test_a_book_that_cannot_be_believed_trusts_nothing(file: Path, env: dict[str, str]) -> None:
    trust(file, env)
    book = trusted.default_path(env)
    good = book.read_bytes()
    newer = msgspec.json.encode(TrustBook(version=trusted.VERSION + 1))
    for bad, words in (
        (b"{", "is damaged"),
        (b'{"files": 3}', "is damaged"),
        (newer, "by a newer rgt"),
    ):
        book.write_bytes(bad)
        assert words in (opened(file, env).doubt or "")
        with pytest.raises(FleetFileError, match=words):
            trust(file, env)
        assert book.read_bytes() == bad
    book.write_bytes(good)
    for path, mode in ((book, 0o602), (book.parent, 0o702)):
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        assert "can be written by everyone" in (opened(file, env).doubt or "")
        path.chmod(before)
    assert opened(file, env).doubt is None
    book.unlink()
    book.mkdir()
    assert "trusted" in (opened(file, env).doubt or "")


def test_revoke(file: Path, env: dict[str, str]) -> None:
    book = trusted.default_path(env)
    assert not trusted.revoke_trust(book, file)
    trust(file, env)
    other = trust(file.with_name("rgt.toml"), env)
    assert trusted.read_book(book).files == {str(file.resolve()): other}
    assert trusted.revoke_trust(book, file.resolve())
    assert trusted.read_book(book).files == {}


def test_what_rgt_writes_keeps_its_trust_and_gains_none(file: Path, env: dict[str, str]) -> None:
    book = trusted.default_path(env)

    def add(name: str, path: Path = file, **values: str) -> bool:
        kept: list[bool] = []

        def written(before: FleetFileSource | None, after: FleetFileSource) -> None:
            kept.append(trusted.renew_trust(book, before, after, env))

        add_boxes(path, {name: {"host": name, **values}}, written)
        return kept == [True]

    assert not add("one")
    assert opened(file, env).doubt is not None
    trust(file, env)
    (file.parent / "new").write_text("x")
    assert add("two", ssh_config=f"{file.parent}/new")
    assert opened(file, env).doubt is None
    (file.parent / "cfg").write_text("changed")
    assert add("three")
    assert "cfg, which has changed" in (opened(file, env).doubt or ""), (
        "nobody has looked at that one"
    )
    (file.parent / "cfg").write_text("cfg\n")
    file.write_text(file.read_text() + '[boxes.by_hand]\nhost = "by-hand"\n')
    assert not add("four")
    fresh = file.with_name("fresh.toml")
    assert add("lab", fresh)
    assert opened(fresh, env).doubt is None


def test_what_rgt_writes_keeps_the_trust_after_an_edit_by_hand_that_kept_it(
    file: Path, env: dict[str, str]
) -> None:
    trust(file, env)
    file.write_text(FULL.replace("per_hour = 1.5", "per_hour = 2.5"))
    before = read_source(file)
    file.write_text(before.text + '[boxes.more]\nhost = "more-host"\n')
    assert trusted.renew_trust(trusted.default_path(env), before, read_source(file), env)
    assert opened(file, env).doubt is None


def test_a_file_that_names_no_box_yet_keeps_its_trust(tmp_path: Path, env: dict[str, str]) -> None:
    path, book = tmp_path / "rgt.toml", trusted.default_path(env)
    path.write_text("# nothing\n")
    empty = read_source(path)
    assert trusted.renew_trust(book, None, empty, env)
    path.write_text('[boxes.a]\nhost = "a"\n')
    assert trusted.renew_trust(book, empty, read_source(path), env)
    assert opened(path, env).doubt is None


def test_a_fleet_file_has_a_size(file: Path) -> None:
    file.write_bytes(b"#" * MAX_BYTES)
    assert len(read_source(file).data) == MAX_BYTES
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(FleetFileError, match="larger than 1 MiB"):
        read_source(file)
    circle = file.with_name("circle")
    circle.symlink_to(circle)
    with pytest.raises(FleetFileError, match="cannot read"):
        read_source(circle)


ME = os.geteuid()


def status(uid: int, gid: int, mode: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, uid, gid, 1, 0, 0, 0))


@pytest.mark.parametrize(
    ("found", "cure"),
    [
        (status(ME, 0, 0o644), None),
        (status(0, 0, 0o644), None),
        (status(0, 0, 0o444), None),
        (status(4242, 0, 0o600), "if you know what is in it, chown "),
        (status(ME, 0, 0o602), "chmod go-w "),
        (status(0, 0, 0o646), "chmod go-w "),
        (status(ME, 4243, 0o620), "chmod g-w "),
        (status(ME, 4243, 0o640), None),
    ],
)
def test_who_else_may_write_a_file(found: os.stat_result, cure: str | None) -> None:
    wrong = files.find_fault(Path("/a b"), found)
    assert (wrong is None) == (cure is None)
    if wrong is not None and cure is not None:
        assert wrong.cure.startswith(cure)
        assert wrong.cure.endswith("'/a b'")


@pytest.mark.parametrize(
    ("name", "members", "primary", "private"),
    [
        ("me", [], 7, True), ("me", ["me"], 7, True), ("me", ["me", "you"], 7, False), ("me", ["you"], 7, False),
        ("users", [], 7, False), ("me", [], 8, False),
    ],
)  # fmt: skip
def test_a_group_of_one_s_own_is_nobody_else(
    monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], primary: int, private: bool
) -> None:
    user = pwd.struct_passwd(("me", "x", ME, primary, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", 7, members)))
    assert (files.find_fault(Path("x"), status(ME, 7, 0o664)) is None) == private


def test_a_group_that_has_no_name_is_somebody_else() -> None:
    wrong = files.find_fault(Path("x"), status(ME, 4_000_001, 0o664))
    assert wrong is not None
    assert wrong.words == "x can be written by others (mode 664)"


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="Linux alone has them here")
def test_an_access_list_makes_the_group_s_bits_say_more(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    os.chown(path, ME, os.getegid())
    entries = [
        (1, 6, 0xFFFFFFFF),
        (2, 6, 4242),
        (4, 4, 0xFFFFFFFF),
        (16, 6, 0xFFFFFFFF),
        (32, 4, 0xFFFFFFFF),
    ]
    raw = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + bits.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, bits, who in entries
    )
    try:
        os.setxattr(path, "system.posix_acl_access", raw)
    except OSError:
        pytest.skip("this file system has no access lists")
    with path.open("rb") as file:
        wrong = files.find_fault(path, os.fstat(file.fileno()), file.fileno())
    assert wrong is not None
    assert wrong.cure.startswith("chmod g-w ")


def test_what_is_published_is_private_and_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state"
    files.replace_file(path, b"one")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"one", 0o600)
    with pytest.raises(OSError, match="Not a directory"):
        files.replace_file(path / "below", b"two")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_where_the_state_lies(tmp_path: Path) -> None:
    assert files.state_directory({"HOME": "/h"}) == Path("/h/.local/state/rgt")
    assert files.state_directory({"HOME": "/h", "XDG_STATE_HOME": "/s"}) == Path("/s/rgt")
    assert files.state_directory({"HOME": "/h", "XDG_STATE_HOME": "s"}) == Path(
        "/h/.local/state/rgt"
    )
