"""A broken profile is refused with the file, the key and the nearest known name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rgt_tui.profiles import ProfileError, data_dir, read_profile

GOOD = """
id = "box"
name = "Box"
kind = "ssh"
confidence = "from-docs"
top_danger = "nothing"

[overrides]
detach = "tmux"

[[tiers]]
name = "disk"
mounts = ["/"]

[[billing]]
verb = "stop"
native_label = "Stop"
kind = "park"
keeps = ["disk"]

[[clocks]]
what = "release"
consequence = "gone"
applies_when = "stopped"
mode = "countdown"
counts_from = "stop"

[[clocks.claims]]
after_s = 60
cited_as = "a page"

[[sources]]
fact = "all of it"
verified = "2026-06"
"""


PRICE = (
    'mounts = ["/"]\n[[tiers.prices]]\namount = 1\nverified = "2026-06"\nurl = "https://x.example"'
)


def read(folder: Path, text: str) -> None:
    path = folder / "box.toml"
    path.write_text(text, encoding="utf-8")
    read_profile(path)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    read(tmp_path, GOOD)


def test_all_keys_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        read(
            tmp_path,
            'id = "box"\nname = "Box"\n[[tiers]]\nmounts = ["/"]\n[[tiers.prices]]\namount = 1\n',
        )
    assert str(caught.value) == (
        "box.toml: kind, confidence, top_danger, overrides.detach, tiers[0].name, tiers[0].prices[0].currency, "
        "tiers[0].prices[0].per, tiers[0].prices[0].verified, tiers[0].prices[0].url: these keys are missing; "
        "docs/profiles.md has a minimal profile to start from"
    )


def test_a_missing_key_is_named_beside_values_of_no_known_shape(tmp_path: Path) -> None:
    for text in (
        "tiers = 3",
        "tiers = [3]",
        "overrides = []",
        'overrides = {detach = "tmux"}\nclocks = {}',
    ):
        with pytest.raises(ProfileError, match=r"box\.toml: "):
            read(tmp_path, text)


MINIMAL = re.findall(
    r"<!-- minimal -->\n```toml\n(.*?)```",
    (Path(__file__).parents[3] / "docs" / "profiles.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def test_the_minimal_profile_of_the_docs_is_taken_and_has_no_line_too_many(tmp_path: Path) -> None:
    (text,) = MINIMAL
    path = tmp_path / "acme.toml"
    path.write_text(text, encoding="utf-8")
    assert read_profile(path).name == "Acme"
    lines = text.splitlines()
    keys = [line.partition(" =")[0] for line in lines if " = " in line]
    assert len(keys) == 6
    for key in keys:
        path.write_text(
            "\n".join(line for line in lines if not line.startswith(f"{key} =")), encoding="utf-8"
        )
        with pytest.raises(
            ProfileError, match=rf"acme\.toml: (overrides\.)?{key}: the key is missing"
        ):
            read_profile(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'detach = "tmux"',
            'detatch = "tmux"',
            r"box\.toml: overrides\.detatch: no such key; did you mean 'detach'",
        ),
        ('top_danger = "nothing"', "", r"box\.toml: top_danger: the key is missing"),
        (
            'mounts = ["/"]',
            'mount = ["/"]',
            r"tiers\[0\]\.mount: no such key; did you mean 'mounts'",
        ),
        ('mounts = ["/"]', 'mounts = "/"', r"tiers\[0\]\.mounts: Expected `array`"),
        ('mounts = ["/"]', 'mounts = ["data"]', r"tiers\[0\]\.mounts: 'data' is not absolute"),
        (
            'mounts = ["/"]',
            'role = "durabel"',
            r"tiers\[0\]\.role: 'durabel' .* did you mean 'durable'",
        ),
        ('kind = "park"', 'kind = "prak"', r"billing\[0\]\.kind: 'prak' .* did you mean 'park'"),
        (
            'keeps = ["disk"]',
            'keeps = ["disc"]',
            r"billing\[0\]\.keeps: no tier .* did you mean 'disk'",
        ),
        (
            'keeps = ["disk"]',
            'keeps = ["disk"]\nloses = ["disk"]',
            r"'disk' is both in keeps and in loses",
        ),
        ('mode = "countdown"', "", r"clocks\[0\]\.mode: the key is missing"),
        (
            'mode = "countdown"',
            'mode = "countdwn"',
            r"clocks\[0\]\.mode: 'countdwn' .* did you mean 'countdown'",
        ),
        (
            'counts_from = "stop"',
            "",
            r"clocks\[0\]\.counts_from: the key is missing: a countdown .* beginning",
        ),
        (
            'counts_from = "stop"',
            'counts_from = "stopp"',
            r"counts_from: 'stopp' .* did you mean 'stop'",
        ),
        (
            'counts_from = "stop"',
            'counts_from = "stop"\nruns = "always"',
            r"\.runs: only a charge has it",
        ),
        (
            'mode = "countdown"',
            'mode = "tripwire"',
            r"counts_from: only a countdown.*watched_by: the key is missing",
        ),
        (
            'mode = "countdown"\ncounts_from = "stop"',
            'mode = "charge"',
            r"runs: the key is missing",
        ),
        (
            'mode = "countdown"\ncounts_from = "stop"',
            'mode = "charge"\nruns = "stoped"',
            r"clocks\[0\]\.runs: 'stoped' .* did you mean 'stopped'",
        ),
        ("after_s = 60", "", r"clocks\[0\]\.claims: a countdown from the stop needs after_s"),
        ("after_s = 60", "after_s = -1", r"clocks\[0\]\.claims\[0\]\.after_s: -1 is not a number"),
        (
            "after_s = 60",
            "after_s = inf",
            r"clocks\[0\]\.claims\[0\]\.after_s: inf is not a number",
        ),
        ("after_s = 60", 'after_s = "60s"', r"clocks\[0\]\.claims\[0\]\.after_s: Expected"),
        ("after_s = 60", "after = 60", r"claims\[0\]\.after: no such key; did you mean 'after_s'"),
        ('cited_as = "a page"', "", r"claims\[0\]: neither url nor cited_as"),
        (
            'cited_as = "a page"',
            'cited_as = "a page"\nverified = "June"',
            r"claims\[0\]\.verified: 'June' is not",
        ),
        (
            'verified = "2026-06"',
            'verified = "2026-13"',
            r"sources\[0\]\.verified: '2026-13' is not a month",
        ),
        (
            'id = "box"',
            'alias = "box"\nid = "box"',
            r"box\.toml: alias: no such key; did you mean 'aliases'",
        ),
        ('kind = "ssh"', 'kind = "shh"', r"kind: 'shh' is not one of .* did you mean 'ssh'"),
        ('"from-docs"', '"from-dogs"', r"confidence: 'from-dogs' .* did you mean 'from-docs'"),
        ('"from-docs"', '"from-docs"\nhome_url = "here"', r"home_url: 'here' is not an address"),
        ('detach = "tmux"', "", r"overrides\.detach: the key is missing"),
        (
            'detach = "tmux"',
            'detach = "tmux"\ndata_dir = "$TMPDIR"',
            r"overrides\.data_dir: '\$TMPDIR' is not abs",
        ),
        (
            'detach = "tmux"',
            'detach = "tmux"\ndurable_dir = "/nfs/<name>"',
            r"overrides\.durable_dir: '/nfs/<name>'",
        ),
        (
            'detach = "tmux"',
            'detach = "tmux"\npython = ["python3"]',
            r"overrides\.python: 'python3' is not absolute",
        ),
        (
            'mounts = ["/"]',
            f"{PRICE}\ncurrency = 'usd'\nper = 'GB-day'",
            r"prices\[0\]\.currency: 'usd' is not",
        ),
        (
            'mounts = ["/"]',
            f"{PRICE}\ncurrency = 'USD'\nper = 'GB-week'",
            r"prices\[0\]\.per: 'GB-week' is not one of",
        ),
        (
            'detach = "tmux"',
            'detach = "tmux"\nenv = {"A B" = "x"}',
            r"overrides\.env\.A B: not a name",
        ),
        (
            'detach = "tmux"',
            'detach = "tmux"\nenv = {A = "$B"}',
            r"overrides\.env\.A: '\$B' is not literal",
        ),
        ('mounts = ["/"]', 'mounts = ["/nfs/*"]', r"tiers\[0\]\.mounts: .* the key 'where'"),
        (
            'mounts = ["/"]',
            'sources = ["docs"]',
            r"tiers\[0\]\.sources: no source has the id 'docs'",
        ),
        (
            'kind = "park"',
            'kind = "park"\nuncertain = ["disk"]',
            r"billing\[0\]: 'disk' is both in keeps and in unc",
        ),
        (
            'keeps = ["disk"]',
            "keeps_for_s = {disc = 60}",
            r"keeps_for_s: no tier .* did you mean 'disk'",
        ),
        (
            'keeps = ["disk"]',
            "keeps_for_s = {disk = -1}",
            r"billing\[0\]\.keeps_for_s\.disk: -1 is not a number",
        ),
        (
            'keeps = ["disk"]',
            "reversible_window_s = nan",
            r"reversible_window_s: nan is not a number",
        ),
        (
            'keeps = ["disk"]',
            "reversible = false\nreversible_window_s = 9",
            r"window_s: only what can be undone",
        ),
        ('kind = "park"', 'kind = "park"\ntrap = true', r"billing\[0\]\.trap: a park is offered"),
        (
            "[[tiers]]",
            "[interuption]\n[[tiers]]",
            r"interuption: no such key; did you mean 'interruption'",
        ),
        (
            "[[tiers]]",
            "[network]\nmiror_needed = true\n[[tiers]]",
            r"network\.miror_needed: .* 'mirror_needed'",
        ),
        (
            "[[tiers]]",
            "[network.traffic]\nmetred = true\n[[tiers]]",
            r"network\.traffic\.metred: .* 'metered'",
        ),
        (
            "[[tiers]]",
            "[network.traffic]\nmetered = true\nnote = 'x'\nmost_per_gib = -1\n[[tiers]]",
            r"network\.traffic\.most_per_gib: -1 is not an amount",
        ),
        (
            "[[tiers]]",
            "[network.traffic]\nmetered = true\nnote = 'x'\ncurrency = 'usd'\n[[tiers]]",
            r"network\.traffic\.currency: 'usd' is not three capital",
        ),
        (
            "[[tiers]]",
            "[interruption]\nspot_grace_s = -5\n[[tiers]]",
            r"spot_grace_s: -5 is not a number",
        ),
        (
            "[[tiers]]",
            "[[launch.ways]]\nvia = 'cli'\ncal = 'x'\n[[tiers]]",
            r"launch\.ways\[0\]\.cal: .* 'call'",
        ),
        (
            "[[tiers]]",
            "[[contradictions]]\nabout = 'a'\nsides = ['one']\ncounts = 'one'\n[[tiers]]",
            r"contradictions\[0\]\.sides: it takes two",
        ),
        ('id = "box"', 'id = "bax"', r"id: 'bax' is not the file's name 'box'"),
        ('id = "box"', 'id = "box', r"box\.toml: not TOML"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError, match=said):
        read(tmp_path, GOOD.replace(old, new, 1))


def test_two_tiers_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"tiers\.name: 'disk' is there twice"):
        read(tmp_path, GOOD + '\n[[tiers]]\nname = "disk"\n')


def test_sources_that_disagree_need_their_words(tmp_path: Path) -> None:
    other = '\n[[clocks.claims]]\nafter_s = 90\ncited_as = "another page"\n'
    with pytest.raises(ProfileError, match=r"clocks\[0\]\.claims: the sources disagree"):
        read(tmp_path, GOOD.replace("\n[[sources]]", f"{other}\n[[sources]]", 1))


def test_a_clock_without_a_source_is_refused(tmp_path: Path) -> None:
    claim = '\n[[clocks.claims]]\nafter_s = 60\ncited_as = "a page"\n'
    notice = GOOD.replace(claim, "").replace(
        'mode = "countdown"\ncounts_from = "stop"', 'mode = "notice"\nclaims = []'
    )
    with pytest.raises(ProfileError, match=r"clocks\[0\]\.claims: at least one source"):
        read(tmp_path, notice)


def test_a_missing_file_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.toml: cannot be read"):
        read_profile(tmp_path / "none.toml")


def test_the_data_stand_beside_the_package_or_at_the_root() -> None:
    assert data_dir().name == "profiles"
    assert (data_dir() / "autodl.toml").is_file()


GOTCHA = """
[[gotchas]]
id = "B1"
symptom = "the disk is full"
cause = "caches"
fix = "move them"
log_signature = '(?i)no space left'
signature_in = "training log"
example = "OSError: No space left on device"
"""


def test_a_signature_that_matches_its_example_is_taken(tmp_path: Path) -> None:
    read(tmp_path, GOOD + GOTCHA)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("no space left", "no space right", r"gotchas\[0\]\.example: the signature does not match"),
        ("no space left", "no (space", r"gotchas\[0\]\.log_signature: not a regular expression"),
        ("no space left", "(?=no) space", r"gotchas\[0\]\.log_signature: RE2 has no '\(\?='"),
        ("no space left", r"(n)o space\1", r"gotchas\[0\]\.log_signature: RE2 has no '\\1'"),
        (
            "no space left",
            "(no space left)?",
            r"gotchas\[0\]\.log_signature: it matches an empty line",
        ),
        ('signature_in = "training log"\n', "", r"gotchas\[0\]\.signature_in: the key is missing"),
        (
            'example = "OSError: No space left on device"\n',
            "",
            r"gotchas\[0\]\.example: the key is missing",
        ),
        (
            "signature_in",
            "signatur_in",
            r"gotchas\[0\]\.signatur_in: no such key; did you mean 'signature_in'",
        ),
    ],
)
def test_a_signature_has_to_match_its_own_example(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in GOTCHA
    with pytest.raises(ProfileError, match=said):
        read(tmp_path, GOOD + GOTCHA.replace(old, new, 1))
