"""What a fleet file may say, and in which words it is refused: always file, line, key, and what to do."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet.config import FleetConfig, FleetFileError, dump_fleet
from rgt_tui.fleet.config.loading import BOX_KEYS, DEFAULT_KEYS, parse_fleet
from rgt_tui.fleet.config.value_checks import no_variable
from rgt_tui.model import BoxSpec
from tests.system.tree import ROOT

FILE = Path("fleet/rgt.toml")
BOX = '[boxes.lab]\nhost = "x"\n'
PODS = """[boxes.a]
host = "a"
profile = "runpod"
provider = {{ kind = "runpod", instance = "i"{first} }}
[boxes.b]
host = "b"
profile = "runpod"
provider = {{ kind = "runpod", instance = "i"{second} }}
"""
SINK = '[[sinks]]\nkind = "bell"\n\n[[sinks]]\n'


def read(text: str) -> FleetConfig:
    return parse_fleet(FILE, text)


REFUSED = [
    (BOX + 'profil = "runpod"', 3, ["'profil'", "boxes.lab", "did you mean 'profile'"]),
    ('[boxes]\nlab.host = "x"\nlab.prot = 22', 3, ["'prot'", "did you mean 'port'"]),
    ('[boxes]\nlab = { host = "x", prot = 22 }', 2, ["'prot'"]),
    ('[boxes]\na = { host = "x" }\nb = { host = "y", logs = ["z", 4] }', 3, ["boxes.b.logs[1]", "text in quotes"]),
    (BOX + "logs = [\n  'a',\n  # note\n  7,\n]", 6, ["boxes.lab.logs[1]"]),
    (BOX + 'port = "22"', 3, ["boxes.lab.port", "a whole number", "text in quotes"]),
    (BOX + "port = 0", 3, ["boxes.lab.port", "0 is not a port"]),
    (BOX + "interval = 0.001", 3, ["boxes.lab.interval", "0.05"]),
    (BOX + "per_hour = -1", 3, ["boxes.lab.per_hour"]),
    (BOX + "asked = { max_per_hour = -1 }", 3, ["boxes.lab.asked.max_per_hour"]),
    (BOX + "asked = { spott = true }", 3, ["'spott'", "'spot'"]),
    (BOX + "per_hour = nan", 3, ["boxes.lab.per_hour"]),
    (BOX + 'currency = "yuan"', 3, ["boxes.lab.currency", "CNY"]),
    (BOX + 'idle_if = "no-progres"', 3, ["boxes.lab.idle_if: 'no-progres' cannot be used", "no-progress=TIME"]),
    (BOX + 'idle_if = "no-progress=2 hours"', 3, ["boxes.lab.idle_if", "'2 hours' is not a time such as"]),
    (BOX + 'env = {WANDB_API_KEY = "x"}', 3, ["boxes.lab.env", "rgt run --secret WANDB_API_KEY"]),
    ('[defaults]\nenv = {"A B" = "x"}\n' + BOX, 2, ["defaults.env", "no name of a variable"]),
    (BOX + "env = {STEPS = 3}", 3, ["boxes.lab.env"]),
    (BOX + "idle_if = 3600", 3, ["boxes.lab.idle_if", "text in quotes", "a whole number"]),
    ('[defaults]\nidle_if = "="\n' + BOX, 2, ["defaults.idle_if"]),
    (BOX + 'pattern = "("', 3, ["boxes.lab.pattern", "regular expression"]),
    (BOX + 'profile = "runpood"', 3, ["boxes.lab.profile", "runpod"]),
    ('[boxes.lab]\nhost = "root@x"', 2, ["boxes.lab.host", "`user`"]),
    ('[boxes.lab]\nhost = "-oProxyCommand=x"', 2, ["boxes.lab.host"]),
    (BOX + 'user = "a;b"', 3, ["boxes.lab.user: 'a;b' is not a valid user name"]),
    (BOX + 'identity = "~/keys/100%.pem"', 3, ["boxes.lab.identity", "100%.pem", "'%.'", "%%"]),
    (BOX + 'known_hosts = "~/%h"', 3, ["boxes.lab.known_hosts", "'%h'"]),
    ('[defaults]\nssh_config = "50%"\n' + BOX, 2, ["defaults.ssh_config", "'%'"]),
    ('[boxes.lab]\nhost = "a/b"', 2, ["boxes.lab.host", "neither a host name nor an alias"]),
    ('[boxes.lab]\nhost = "$(id)"', 2, ["boxes.lab.host", "neither a host name nor an alias"]),
    ("defaults = 5\n" + BOX, 1, ["defaults: must be a table"]),
    (BOX + "provider = 5", 3, ["boxes.lab.provider: must be a table"]),
    (BOX + 'asked = "spot"', 3, ["boxes.lab.asked: must be a table"]),
    ("boxes.lab = 5", 1, ["boxes.lab: must be a table"]),
    (BOX + "logs = [ # a\n\n  'a', # note\n  # more\n\n  7,\n]", 8, ["boxes.lab.logs[1]"]),
    ('boxes . lab . host = "x"\n\nboxes . lab . prot = 3', 3, ["'prot'"]),
    ("sinks = [3]\n" + BOX, 1, ["sinks[0]: must be a table"]),
    (BOX + SINK + 'kind = "desktop"\nboxes = ["zzz"]', 8, ["sinks[1].boxes[0]", "there are: lab"]),
    ('[boxes.lab]\nuser = "x"', 1, ["boxes.lab", "lacks `host`", "lab-a100"]),
    ("boxes.lab = 3", 1, ["boxes.lab", "a table"]),
    ("boxes = 3", None, ["names no box"]),
    ('[[boxes]]\nname = "lab"\nhost = "x"', 1, ["boxes: ", "is a list", "[boxes.lab]", "not [[boxes]]"]),
    ('[[boxes]]\nhost = "x"', 1, ["[boxes.NAME]", "not [[boxes]]"]),
    ('[boxes."a b"]\nhost = "x"', 1, ["'a b'", "not a valid box name"]),
    ('[box.lab]\nhost = "x"', 1, ["'box'", "boxes"]),
    (BOX + '[boxes.lab.provider]\nkind = "runpod"', 3, ["boxes.lab.provider", "lacks `instance`"]),
    (BOX + 'provider = { kind = "k", instance = "i", bas_url = "x" }', 3, ["'bas_url'", "base_url"]),
    (BOX + 'provider = { kind = "k", instance = "i", base_url = "ftp://x" }', 3, ["provider.base_url"]),
    (BOX + 'results = ["out"]', 3, ["boxes.lab.results", "'out'", "not an absolute path on the box"]),
    (BOX + 'ignore = ["/a", "/b/../c"]', 3, ["boxes.lab.ignore", "'/b/../c'"]),
    (BOX + 'ignore = ["/*"]', 3, ["boxes.lab.ignore", "would ignore every result"]),
    (BOX + 'protected = 1', 3, ["boxes.lab.protected", "must be true or false"]),
    (BOX + 'provider = { kind = "runpod", instance = "i" }', 3,
     ["boxes.lab.provider.kind: is 'runpod', but the box's profile is 'generic-ssh'", 'profile = "runpod"']),
    (PODS.format(first="", second=""), 8, ["boxes.b.provider.instance: 'i' is also that of boxes.a"]),
    (BOX + "provider = 3", 3, ["boxes.lab.provider", "a table"]),
    ('[defaults]\nhost = "x"\n' + BOX, 2, ["'host'", "defaults"]),
    ('[defaults]\n\nprot = 2\n' + BOX, 3, ["'prot'", "port"]),
    ('[defaults]\nport = "x"\n' + BOX, 2, ["defaults.port"]),
    ('[defaults]\nprofile = "x"\n' + BOX, 2, ["defaults.profile"]),
    (BOX + "[alerts.idle-gp]\nhold_s = 3", 3, ["'idle-gp'", "did you mean 'idle-gpu'"]),
    (BOX + "[alerts.idle-gpu]\nhold = 3", 4, ["'hold'", "hold_s"]),
    (BOX + "[alerts.idle-gpu]\nhold_s = -3", 4, ["alerts.idle-gpu.hold_s", "a number of seconds, 0 or more"]),
    (BOX + "[alerts.idle-gpu]\nhold_s = 'x'", 4, ["alerts.idle-gpu.hold_s", "must be a number, not text in quotes"]),
    (BOX + "[alerts.bytes]\nwarn = 96", 3, ["alerts.bytes", "error must be worse"]),
    (BOX + "[alerts.failed]\nerror = 1", 4, ["alerts.failed.error", "no limit to set"]),
    (BOX + SINK + 'kind = "bell"', 6, ["sinks[1]: a second sink is called 'bell'", "another name"]),
    (BOX + SINK + 'kind = "desktop"\nname = "bell"', 8, ["sinks[1].name: a second sink is called 'bell'"]),
    (BOX + SINK + 'kind = "desktop"\ntimeout_s = 0', 8, ["sinks[1].timeout_s", "above 0"]),
    (BOX + SINK + 'kind = "ntfi"', 7, ["sinks[1].kind", "ntfy"]),
    (BOX + SINK + 'kind = "ntfy"', 6, ["sinks[1]", "url_env"]),
    (BOX + SINK + 'kind = "ntfy"\nurl_env = "A"\nurl_file = "b"', 6, ["one of them"]),
    (BOX + SINK + 'kind = "command"', 6, ["argv"]),
    (BOX + SINK + 'kind = "desktop"\nquiet_hours = "22-7"', 8, ["quiet_hours", "22:00-07:00"]),
    (BOX + SINK + 'kind = "desktop"\nboxes = ["lab", "lob"]', 8, ["sinks[1].boxes[1]", "'lob'", "'lab'"]),
    (BOX + SINK + 'kind = "desktop"\nkinds = ["idle"]', 8, ["sinks[1].kinds[0]", "idle-gpu"]),
    (BOX + 'x = "\\q"', 3, ["not valid TOML"]),
    ("[boxes.lab\n", 1, ["not valid TOML"]),
    (BOX + BOX, 3, ["not valid TOML"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "words"), REFUSED, ids=[text[-40:] for text, _, _ in REFUSED]
)
def test_what_is_wrong_is_refused_with_its_line(
    text: str, line: int | None, words: list[str]
) -> None:
    with pytest.raises(FleetFileError) as error:
        read(text)
    said = str(error.value)
    assert said.startswith(f"{FILE}:{line}: " if line else str(FILE)), said
    assert [word for word in words if word not in said] == [], said


SECRETS = [
    (BOX + 'password = "hunter2"', 3),
    (BOX + 'api_key = "hunter2"', 3),
    ('token = "hunter2"\n' + BOX, 1),
    (BOX + 'provider = { kind = "k", instance = "i", key = "hunter2" }', 3),
    (BOX + 'provider = { kind = "k", instance = "i", key_env = "rpa_HUNTER2hunter2" }', 3),
    (BOX + 'identity = "-----BEGIN OPENSSH PRIVATE KEY-----\\nhunter2"', 3),
    (BOX + 'logs = ["a", "hf_hunter2"]', 3),
    (BOX + 'tiers = { "/data" = "sk-hunter2" }', 3),
    (BOX + '[boxes.lab.tiers]\n"/data" = "sk-hunter2"', 4),
    (BOX + 'provider = { kind = "k", instance = "i", key_env = "Zk9-hunter2key-123" }', 3),
    (BOX + 'provider = { kind = "k", instance = "i", key_env = "a1f3hunter2e98b77c4d0a55" }', 3),
    (BOX + '[[sinks]]\nkind = "ntfy"\nurl_env = "https://hooks.slack.com/services/hunter2"', 5),
    (BOX + '[[sinks]]\nkind = "ntfy"\nurl_file = "https://hooks.slack.com/services/hunter2"', 5),
    (BOX + '[[sinks]]\nkind = "bell"\ntoken_env = "hunter2 with a blank"', 5),
    (BOX + '[[sinks]]\nkind = "ntfy"\nurl = "https://ntfy.sh/hunter2"', 5),
]


@pytest.mark.parametrize(("text", "line"), SECRETS)
def test_a_secret_is_refused_with_advice_and_never_repeated(text: str, line: int) -> None:
    with pytest.raises(FleetFileError) as error:
        read(text)
    said = str(error.value)
    assert said.startswith(f"{FILE}:{line}: ")
    assert "environment variable" in said
    assert "hunter2" not in said.lower()


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(
        FleetFileError, match=f"{FILE}:3: boxes.lab.provider.base_url: must be"
    ) as error:
        read(
            BOX + 'provider = { kind = "k", instance = "i", base_url = "https://me:hunter2@host/" }'
        )
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("RUNPOD_API_KEY", False),
        ("http_proxy", False),
        ("NTFY2", False),
        ("RGT_KEY_OF_LAB_4090_BOX_17", False),
        ("deadbeefdeadbeef0123", True),
        ("A1B2C3D4E5F60718293A", True),
        ("sk_live_51HabcXYZdefGHI", True),
        ("x" * 65, True),
    ],
)
def test_a_secret_is_told_from_the_name_of_a_variable(name: str, secret: bool) -> None:
    assert no_variable(name) == secret


def test_the_smallest_file_of_the_documents_works() -> None:
    text = (ROOT / "docs" / "fleet-file.md").read_text(encoding="utf-8")
    smallest = text.split("```toml\n")[1].split("```")[0]
    (spec,) = read(smallest).boxes
    assert spec == BoxSpec(
        name="lab", host="lab-a100", profile="generic-ssh", logs=("~/exp/*.log",)
    )


def test_every_key_is_documented_and_every_documented_box_key_is_one() -> None:
    text = (ROOT / "docs" / "fleet-file.md").read_text(encoding="utf-8")
    table = text.split("## A box\n")[1].split("\n## ")[0]
    named = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert named == set(BOX_KEYS)


def test_defaults_hold_for_every_box_that_does_not_say_it_itself() -> None:
    config = read(
        '[defaults]\nuser = "me"\nlogs = ["~/a.log"]\nprofile = "autodl"\n[boxes.a]\nhost = "a"\n'
        '[boxes.b]\nhost = "b"\nuser = "you"\nlogs = []\n'
    )
    a, b = config.boxes
    assert (a.user, a.logs, a.profile) == ("me", ("~/a.log",), "autodl")
    assert (b.user, b.logs, b.profile) == ("you", (), "autodl")


def test_defaults_may_say_all_but_who_a_box_is() -> None:
    assert set(BOX_KEYS) - set(DEFAULT_KEYS) == {"host", "provider", "kubectl"}


def test_a_path_on_the_box_stays_as_it_is_written() -> None:
    (spec,) = read(BOX + 'logs = ["~/exp/*.log"]\njobs = ["~/jobs"]\nruns = ["~/r"]').boxes
    assert (spec.logs, spec.jobs, spec.runs) == (("~/exp/*.log",), ("~/jobs",), ("~/r",))


def test_two_boxes_at_one_address_are_warned_of() -> None:
    same = '[boxes.a]\nhost = "h"\nport = 1\n[boxes.b]\nhost = "h"\nport = 2\n[boxes.c]\nport = 1\nhost = "h"\n'
    (warning,) = read(same).warnings
    assert warning == f"{FILE}:9: boxes.c is the same host, port and user as boxes.a"


def test_alerts_and_sinks_are_taken_in() -> None:
    config = read(
        BOX
        + "[alerts.idle-gpu]\nhold_s = 1800\nenabled = false\n[[sinks]]\nkind = 'ntfy'\nurl_env = 'N'\n"
        "boxes = ['lab']\nkinds = ['idle-gpu']\nquiet_hours = '22:00-07:00'\n"
    )
    assert (config.alerts.kinds["idle-gpu"].hold_s, config.alerts.kinds["idle-gpu"].enabled) == (
        1800,
        False,
    )
    (sink,) = config.alerts.sinks
    assert sink.name == "ntfy"
    assert (sink.kind, sink.url_env, sink.boxes) == ("ntfy", "N", ("lab",))


def test_what_rgt_init_writes_is_toml_and_every_commented_line_is_valid_when_it_is_made_to_count() -> (
    None
):
    from rgt_tui.cli.set_up.adding import TEMPLATE

    assert tomllib.loads(TEMPLATE) == {}
    lines = [line.removeprefix("# ") for line in TEMPLATE.splitlines()]
    kept = [
        line
        for line in lines
        if line.startswith("[") or (" = " in line and not line.startswith("Add"))
    ]
    config = read("\n".join(kept))
    assert (config.boxes[0].name, config.boxes[0].per_hour) == ("lab", 1.89)
    assert config.boxes[0].provider is not None
    assert config.alerts.sinks
    assert msgspec.to_builtins(config.boxes[0])["logs"] == ("~/exp/*.log",)


def test_two_accounts_may_have_a_machine_of_one_id() -> None:
    config = read(PODS.format(first="", second=', key_env = "OTHER"'))
    assert [spec.name for spec in config.boxes] == ["a", "b"]


@pytest.mark.parametrize("price", [0.0, 0.05, 0.5, 98.32])
def test_a_price_below_one_is_a_price(price: float) -> None:
    assert read(BOX + f"per_hour = {price}").boxes[0].per_hour == price


def test_results_ignored_directories_and_protection_are_read() -> None:
    (spec,) = read(
        '[boxes.a]\nhost = "a"\nresults = ["/w/*"]\nignore = ["/w/tmp"]\nprotected = true\n'
    ).boxes
    assert (spec.results, spec.ignore, spec.protected) == (("/w/*",), ("/w/tmp",), True)


POD = '[boxes.lm.kubectl]\ncontext = "prod"\nnamespace = "ml"\n'


def test_a_pod_is_a_box_without_a_host() -> None:
    (spec,) = read(POD + 'pod = "train-0"').boxes
    assert (spec.host, spec.profile, spec.transport) == ("ml/train-0", "kubernetes", "kubectl")
    assert spec.provider is not None
    assert (spec.provider.instance, spec.provider.via) == ("ml/pod/train-0", "prod")
    (spec,) = read(POD + 'selector = "job-name=lm"').boxes
    assert spec.provider is not None
    assert spec.provider.instance == "ml/job/lm"
    (spec,) = read(POD + 'selector = "app=lm"').boxes
    assert (spec.provider, spec.login_words()) == (None, ["rgt", "ssh", "lm"])
    assert read(dump_fleet([spec])).boxes == (spec,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (POD, "needs one of `pod`, `selector` and `job`; it has none of them"),
        (POD + 'pod = "a"\njob = "b"', "it has `pod` and `job`"),
        ('[boxes.lm]\nhost = "h"\n' + POD + 'pod = "a"', "boxes.lm.host: does not apply to a box"),
        (
            POD + 'pod = "--token=x"',
            "boxes.lm.kubectl.pod: '--token=x' is not a name of Kubernetes",
        ),
        (
            POD.replace("prod", "-x") + 'pod = "a"',
            "boxes.lm.kubectl.context: '-x' is not a context",
        ),
        (POD + 'selector = "-lx"', "is not a label selector"),
        ('[boxes.lm.kubectl]\nnamespace = "ml"\npod = "a"', "lacks `context`"),
        (POD + 'pod = "a"\nimage = "i"', "boxes.lm.kubectl.image: needs `job`"),
    ],
)
def test_a_pod_that_is_not_described_well_is_refused(text: str, words: str) -> None:
    with pytest.raises(FleetFileError, match=re.escape(words)):
        read(text)
