"""Where keys come from, and where they must not go."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui import files
from rgt_tui.fleet.config import FleetFilePlace, open_place
from rgt_tui.model import BillingVerb, Permit, ProviderRef, Secret
from rgt_tui.providers import AuthError, PermitRefused, Providers, UnknownProvider, use_permit
from rgt_tui.providers.control_plane import make_printable
from rgt_tui.providers.http import KeyStore, check_base_url, find_key
from rgt_tui.providers.runpod import key_of_tools

VENDOR = "https://api.runpod.io"
ENV = "RUNPOD_API_KEY"


def key(env: dict[str, str], home: Path | None = None, key_env: str | None = None) -> str:
    files = () if home is None else ((home / ".runpod/config.toml", key_of_tools),)
    found = find_key(env, key_env=key_env, default_env=ENV, console="https://c", vendor_files=files)
    return found.reveal()


def written(home: Path, text: str) -> Path:
    (home / ".runpod").mkdir(exist_ok=True)
    (home / ".runpod" / "config.toml").write_text(text)
    return home


class Ring:
    """Stands for the library `keyring`, as far as it is used."""

    def __init__(
        self, keys: dict[tuple[str, str], str | None], wait: threading.Event | None = None
    ) -> None:
        self.keys, self.wait, self.asked = keys, wait, 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        if self.wait is not None:
            self.wait.wait()
        return self.keys[service, username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ring | None], None]:
    """Install a keyring, or take the library away."""

    def install(made: Ring | None) -> None:
        monkeypatch.setattr(KeyStore, "is_installed", staticmethod(lambda: made is not None))
        monkeypatch.setitem(sys.modules, "keyring", made)

    return install


def stored(store: KeyStore, env: dict[str, str] | None = None, key_env: str | None = None) -> str:
    found = find_key(env or {}, key_env=key_env, default_env=ENV, console="https://c", store=store)
    return found.reveal()


def test_the_keyring_comes_last_and_is_asked_once(ring: Callable[[Ring | None], None]) -> None:
    made = Ring({("rgt", ENV): "stored\n", ("rgt", "MINE"): "mine"})
    ring(made)
    store = KeyStore()
    assert stored(store, {ENV: "env"}) == "env" and made.asked == 0
    assert stored(store) == "stored"
    assert stored(store) == "stored"
    assert made.asked == 1
    assert stored(store, key_env="MINE") == "mine"


def test_a_keyring_that_asks_its_person_counts_when_it_answers(
    ring: Callable[[Ring | None], None],
) -> None:
    made = Ring({("rgt", ENV): "stored"}, threading.Event())
    ring(made)
    store = KeyStore(patience_s=0.01)
    with pytest.raises(
        AuthError, match=r"RUNPOD_API_KEY or the keyring \(keyring set rgt RUNPOD_API_KEY\)"
    ):
        stored(store)
    assert made.wait is not None
    made.wait.set()
    store._asked[ENV].join()
    assert stored(store) == "stored"
    assert made.asked == 1


def test_a_broken_keyring_or_none_is_no_key(ring: Callable[[Ring | None], None]) -> None:
    ring(Ring({}))
    with pytest.raises(AuthError, match="no key"):
        stored(KeyStore())
    ring(None)
    with pytest.raises(
        AuthError, match=r"no key in the environment variable RUNPOD_API_KEY; set it"
    ):
        stored(KeyStore())


def test_the_environment_comes_first(tmp_path: Path) -> None:
    home = written(tmp_path, 'apikey = "file"')
    assert key({ENV: " env \n"}, home) == "env"
    assert key({"MINE": "mine", ENV: "env"}, home, "MINE") == "mine"


@pytest.mark.parametrize(
    "text",
    [
        'apikey = "file"\napiurl = "x"',
        '[default]\napi_key = "file"',
        'apikey = ""\n[default]\napi_key="file"',
    ],
)
def test_both_shapes_of_the_vendors_file(tmp_path: Path, text: str) -> None:
    assert key({}, written(tmp_path, text)) == "file"


@pytest.mark.parametrize(
    "text", ["", "apikey = 3", "not toml", "default = 1", '\ufeff"', "[default]\napi_key = []"]
)
def test_a_missing_key_says_what_to_set(tmp_path: Path, text: str) -> None:
    with pytest.raises(AuthError, match=r"RUNPOD_API_KEY or /.*/\.runpod/config\.toml.*https://c"):
        key({}, written(tmp_path, text))


def test_a_named_variable_is_the_only_place(tmp_path: Path) -> None:
    with pytest.raises(AuthError, match="MINE"):
        key({ENV: "env"}, written(tmp_path, 'apikey = "file"'), "MINE")


@pytest.mark.parametrize("bad", ["a b", "a\nb", "schlüssel", "a\x1b"])
def test_a_key_that_cannot_be_a_header_is_refused_unseen(bad: str) -> None:
    with pytest.raises(AuthError) as caught:
        key({ENV: bad})
    assert bad not in str(caught.value)


def test_a_secret_does_not_show() -> None:
    secret = Secret("hush")
    assert "hush" not in repr(secret) + str(secret) + f"{[secret]}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    ("url", "key_env", "why"),
    [
        ("https://evil.example", None, "for https://api.runpod.io only"),
        ("https://evil.example", ENV, "for https://api.runpod.io only"),
        ("https://api.runpod.io.evil.example", None, "only"),
        ("http://api.runpod.io", None, "plain http"),
        ("http://192.0.2.7:80", "OTHER", "plain http"),
        ("https://user:pass@api.runpod.io", None, "plain http.s. address"),
        ("ftp://127.0.0.1", None, "plain http.s. address"),
        ("http://[", None, "plain http.s. address"),
        ("http://127.0.0.1:x", None, "plain http.s. address"),
        ("https://api.runpod.io/?a=1", None, "plain http.s. address"),
        ("api.runpod.io", None, "plain http.s. address"),
        ("http://127.0.0.1@evil.example", "OTHER", "address"),
        ("http://127.0.0.1:81", None, "name another variable in key_env for 127.0.0.1"),
        (
            VENDOR,
            "AWS_SECRET_ACCESS_KEY",
            "a variable of AWS, whose key is not sent to api.runpod.io",
        ),
        ("https://evil.example", "aws_secret_access_key", "a variable of AWS"),
        ("http://127.0.0.1:81", "GITHUB_TOKEN", "a variable of GITHUB"),
        (VENDOR, "HF_TOKEN", "a variable of HF"),
        (VENDOR, "VAST_API_KEY", "a variable of VAST"),
        ("http://127.0.0.1:81", "AUTODL_TOKEN", "a variable of AUTODL"),
    ],
)
def test_the_vendors_key_does_not_leave_for_elsewhere(
    url: str, key_env: str | None, why: str
) -> None:
    with pytest.raises(AuthError, match=why):
        check_base_url(url, VENDOR, key_env, ENV)


@pytest.mark.parametrize(
    ("url", "key_env"),
    [
        (VENDOR, None),
        (VENDOR, ENV),
        (VENDOR + "/", None),
        ("http://127.0.0.1:81", ENV),
        ("http://[::1]:81", "OTHER"),
        ("https://proxy.example", "OTHER"),
    ],
)
def test_where_a_key_may_go(url: str, key_env: str | None) -> None:
    check_base_url(url, VENDOR, key_env, ENV)


async def test_a_missing_key_is_a_reading_not_a_crash() -> None:
    providers = Providers(env={})
    provider = providers.open_control_plane(
        ProviderRef("runpod", "pod1", "http://127.0.0.1:9", "NOWHERE")
    )
    meter = await provider.read("pod1")
    assert meter.error is not None
    assert "NOWHERE" in meter.error
    await providers.close()


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(UnknownProvider, match=r"'nimbus'.*runpod"):
        Providers(env={}).open_control_plane(ProviderRef("nimbus", "x"))


def test_boxes_of_one_account_share_it() -> None:
    providers = Providers(env={})
    one = providers.find_account(ProviderRef("runpod", "a"))
    assert providers.find_account(ProviderRef("runpod", "b")) is one
    assert providers.find_account(ProviderRef("runpod", "b", key_env="OTHER")) is not one


def test_every_reason_against_a_permit_comes_at_once() -> None:
    permit = Permit("box", BillingVerb.PARK, "other\x1b[2J", "d", 10.0, account="mine@else")
    mine = ProviderRef("runpod", "mine")
    with pytest.raises(PermitRefused) as caught:
        use_permit(permit, BillingVerb.DESTROY, mine, 12.0)
    for part in (
        "for verb park, not for destroy",
        "for provider (none), not for runpod",
        "for account mine@else, not for default@vendor",
        "not for mine",
        "expired 2s ago",
        "no nonce",
        "Nothing was sent",
    ):
        assert part in str(caught.value)
    assert str(caught.value).isprintable()
    nameless = Permit(
        "box", BillingVerb.PARK, "", "d", 99.0, kind="runpod", account="default@vendor", nonce="n"
    )
    with pytest.raises(PermitRefused):
        use_permit(nameless, BillingVerb.PARK, ProviderRef("runpod", ""), 1.0)


def test_a_strangers_text_is_made_harmless() -> None:
    assert make_printable("a\x1b[31m\nb\u202ec") == "a [31m b c"
    assert make_printable("x" * 999, 10) == "x" * 9 + "…"


def test_the_http_client_is_not_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, rgt_tui.providers.control_plane, rgt_tui.providers.registry, rgt_tui.providers.stopping\n"
        "import rgt_tui.gate.evidence, rgt_tui.gate.decision, rgt_tui.gate.audit\n"
        "bad = {'httpx', 'httpcore', 'ssl', 'asyncio'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_the_gate_and_the_providers_do_not_know_each_other() -> None:
    root = Path(__file__).parents[3] / "rgt_tui"
    for package, other in (("gate", "rgt_tui.providers"), ("providers", "rgt_tui.gate")):
        for path in (root / package).rglob("*.py"):
            imports = [
                line
                for line in path.read_text().splitlines()
                if line.startswith(("import ", "from "))
            ]
            assert not [line for line in imports if other in line], path


@pytest.fixture
def env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``.env`` next to a trusted fleet file."""
    monkeypatch.setattr(files, "ENV_FILES", [])
    path = tmp_path / ".env"
    files.add_env_file(path)
    return path


def found_in(env: dict[str, str], also: tuple[str, ...] = ("OTHER_KEY",)) -> tuple[str, str]:
    secret = find_key(env, key_env=None, default_env=ENV, console="https://c", also=also)
    return secret.reveal(), secret.place


def test_a_key_is_found_in_env_files_under_each_of_its_names(env_file: Path) -> None:
    env_file.write_text(
        "# keys\nexport RUNPOD_API_KEY='quoted' # mine\nOTHER_KEY=other # a comment\nbroken\nEMPTY=\n"
    )
    assert found_in({}) == ("quoted", f"RUNPOD_API_KEY in {env_file}")
    assert found_in({ENV: "env"}) == ("env", "RUNPOD_API_KEY in the environment")
    assert found_in({"OTHER_KEY": "alias"}) == ("alias", "OTHER_KEY in the environment")
    env_file.write_text('OTHER_KEY="with # inside"\nRUNPOD_API_KEY=\n')
    assert files.find_in_env_files((ENV, "OTHER_KEY"))[0] == "with # inside"


def test_an_env_file_that_others_can_change_is_not_used(env_file: Path) -> None:
    env_file.write_text("RUNPOD_API_KEY=mine\n")
    env_file.chmod(0o666)
    with pytest.raises(AuthError, match=r"OTHER_KEY or \S+\.env .*not used: chmod go-w"):
        found_in({})
    env_file.chmod(0o600)
    assert found_in({})[0] == "mine"
    env_file.write_text("RUNPOD_API_KEY=mine\n" + "#" * 70_000)
    assert files.find_in_env_files((ENV,)) == ("", "")


def test_the_env_file_of_a_repository_counts_only_once_its_fleet_file_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stranger's key would rent machines in the stranger's account."""
    monkeypatch.setattr(files, "ENV_FILES", [])
    (tmp_path / ".env").write_text("RUNPOD_API_KEY=strange\n")
    fleet = tmp_path / "rgt.toml"
    fleet.write_text(
        '[boxes.a]\nhost = "a"\nprofile = "runpod"\nprovider = {kind = "runpod", instance = "x"}\n'
    )
    env = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}
    open_place(FleetFilePlace(fleet, lies_there=True), env)
    assert files.find_in_env_files((ENV,)) == ("", "")
    open_place(FleetFilePlace(fleet, lies_there=False), env)
    assert files.find_in_env_files((ENV,))[0] == "strange"
