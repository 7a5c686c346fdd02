"""What `rgt doctor` says of the files and variables that a fleet file names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rgt_tui import files
from rgt_tui.cli.set_up.doctor_here import DoctorFinding, check_provider_keys, check_secrets
from rgt_tui.fleet.config.loading import parse_fleet


def checked(text: str, home: Path, **env: str) -> DoctorFinding:
    config = parse_fleet(home / "rgt.toml", '[boxes.lab]\nhost = "x"\n' + text)
    return check_secrets(config, {"HOME": str(home), **env})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


MISSING = [
    ('identity = "~/nope"\n', "boxes.lab: identity = '~/nope': there is no such file"),
    ('identity = "${NOPE}/id"\n', "the environment variable NOPE is not set"),
    (
        '[[sinks]]\nkind = "ntfy"\nurl_file = "/no/such"\n',
        "sinks[0]: url_file = '/no/such': No such file",
    ),
    ('[[sinks]]\nkind = "ntfy"\nurl_file = "~no-such-user/f"\n', "sinks[0]: url_file"),
    (
        '[[sinks]]\nkind = "ntfy"\nurl_env = "MY_TOPIC"\n',
        "url_env names 'MY_TOPIC', which is not set",
    ),
]


@pytest.mark.parametrize(("text", "words"), MISSING)
def test_what_is_missing_is_a_failure_and_never_a_traceback(
    tmp_path: Path, text: str, words: str
) -> None:
    found = checked(text, tmp_path)
    assert (found.status, words in found.text, bool(found.advice)) == ("fail", True, True), found


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    found = checked('identity = "~/nope"\n[[sinks]]\nkind = "ntfy"\nurl_env = "T"\n', tmp_path)
    assert "identity" in found.text and "url_env" in found.text


def test_a_name_that_may_be_the_secret_is_not_shown(tmp_path: Path) -> None:
    found = checked('[[sinks]]\nkind = "ntfy"\nurl_env = "hunter2hunter2"\n', tmp_path)
    assert (found.status, "hunter2" in found.text) == ("fail", False)
    assert "sinks[0]: url_env names a variable that is not set" in found.text


def test_a_variable_that_is_set_is_there_and_its_value_is_not_shown(tmp_path: Path) -> None:
    text = 'profile = "runpod"\nprovider = { kind = "runpod", instance = "i", key_env = "RGT_TEST_KEY" }\n'
    assert "key_env names 'RGT_TEST_KEY', which is not set" in checked(text, tmp_path).text
    found = checked(text, tmp_path, RGT_TEST_KEY="hunter2")
    assert (found.status, "hunter2" in repr(found)) == ("ok", False)


def test_a_key_is_found_as_connecting_finds_it(tmp_path: Path, key: Path) -> None:
    for text in ("~/id", "${KEYS}/id", "%d/id", str(key)):
        found = checked(f'identity = "{text}"\n', tmp_path, KEYS=str(tmp_path))
        assert (found.status, found.text) == ("ok", "1 named, all present"), found


def test_of_a_key_that_the_agent_holds_the_public_half_is_enough(tmp_path: Path, key: Path) -> None:
    assert (
        checked('identity = "~/id.pub"\n', tmp_path).status == "ok"
    )  # readable by all, and no secret
    key.unlink()
    assert checked('identity = "~/id"\n', tmp_path).status == "ok"


def test_what_others_can_read_is_a_warning(tmp_path: Path, key: Path) -> None:
    key.chmod(0o644)
    loose = checked('identity = "~/id"\n', tmp_path)
    assert (loose.status, "others may read it" in loose.text) == ("warn", True)
    topic = tmp_path / "topic"
    topic.write_text("https://ntfy.sh/x")
    topic.chmod(0o640)
    sink = f'[[sinks]]\nkind = "ntfy"\nurl_file = "{topic}"\n'
    loose = checked(sink, tmp_path)
    assert (loose.status, "mode 640" in loose.text) == ("warn", True)
    topic.chmod(0o600)
    assert checked(sink, tmp_path).status == "ok"


def test_the_place_of_each_account_s_key_is_said_and_never_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ENV_FILES", [])
    for name in ("VAST_API_KEY", "RUNPOD_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("VASTAI_API_KEY", "s3cret")
    boxes = (
        '[boxes.a]\nhost = "a"\nprofile = "vastai"\nprovider = {kind = "vastai", instance = "1"}\n'
    )
    found = check_provider_keys(parse_fleet(tmp_path / "rgt.toml", boxes))
    assert (found.status, found.text) == ("ok", "vastai: VASTAI_API_KEY in the environment")
    boxes += (
        '[boxes.b]\nhost = "b"\nprofile = "runpod"\nprovider = {kind = "runpod", instance = "2"}\n'
    )
    found = check_provider_keys(parse_fleet(tmp_path / "rgt.toml", boxes))
    assert found.status == "fail"
    assert "runpod: no key in the environment variable RUNPOD_API_KEY" in found.text
    (tmp_path / ".env").write_text("RUNPOD_API_KEY=s3cret\n")
    (tmp_path / ".env").chmod(0o644)
    files.add_env_file(tmp_path / ".env")
    found = check_provider_keys(parse_fleet(tmp_path / "rgt.toml", boxes))
    assert (found.status, found.advice) == ("warn", f"chmod 600 {tmp_path / '.env'}")
    (tmp_path / ".env").chmod(0o600)
    found = check_provider_keys(parse_fleet(tmp_path / "rgt.toml", boxes))
    assert found.status == "ok"
    assert found.text.endswith(f"runpod: RUNPOD_API_KEY in {tmp_path / '.env'}")
    assert "s3cret" not in str(found)
    assert check_provider_keys(None).status == "skip"
