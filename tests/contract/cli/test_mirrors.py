"""`rgt mirrors` against a real sshd: only what the platform's profile knows is set, and undone."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from rgt_tui.cli.set_up.secrets_and_mirrors import mirror_facts
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import all_profiles
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd


def test_on_and_off(rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd) -> None:
    home = real_sshd.folder / "home"
    (home / ".bashrc").write_text("alias ll='ls -l'")
    rgt.describe([msgspec.structs.replace(lab, profile="autodl")])
    shown = rgt.on("mirrors", "lab")
    assert shown.returncode == 0, shown.stderr
    assert (
        "on for jobs " in shown.stdout
        and "network_turbo" in shown.stdout
        and "modelscope.cn" in shown.stdout
    )
    told = json.loads(rgt.on("mirrors", "lab", "--on", "--json").stdout)
    assert told["login"]["sourced_by"] == [str(home / ".bashrc")] and told["login"]["kinds"] == [
        "hf",
        "proxy",
    ]
    assert "HF_HUB_DISABLE_XET=1" in Path(told["login"]["file"]).read_text()
    assert rgt.on("mirrors", "lab", "--off").returncode == 0
    assert (home / ".bashrc").read_text() == "alias ll='ls -l'" and not Path(
        told["login"]["file"]
    ).exists()
    assert "off " in rgt.on("mirrors", "lab").stdout
    refused = rgt.on("mirrors", "lab", "--on", "--for", "conda")
    assert refused.returncode == 1 and "no mirror is known for AutoDL: conda" in refused.stderr
    assert rgt.on("mirrors", "lab", "--for", "nix").returncode == 2


def test_nothing_is_set_where_nothing_is_known(rgt: Rgt, lab: BoxSpec) -> None:
    rgt.describe([msgspec.structs.replace(lab, profile="lambda")])
    refused = rgt.on("mirrors", "lab", "--on")
    assert refused.returncode == 1 and "no mirror is known for" in refused.stderr
    assert "no mirror is known for" in rgt.on("mirrors", "lab").stdout


def test_every_fact_stands_in_a_profile() -> None:
    facts = {
        id_: {fact.kind: fact for fact in mirror_facts(profile)}
        for id_, profile in all_profiles().items()
    }
    assert facts["autodl"]["hf"].env == {
        "HF_ENDPOINT": "https://hf-mirror.com",
        "HF_HUB_DISABLE_XET": "1",
    }
    assert facts["autodl"]["proxy"].is_settable and not facts["gpushare"]["proxy"].is_settable
    assert facts["gpushare"]["proxy"].by_hand and not facts["matpool"]["pip"].is_settable
    assert "switch_pip_source.sh" in facts["matpool"]["pip"].by_hand[0]
    assert (
        not any(fact.is_settable for fact in facts["generic-ssh"].values())
        and facts["lambda"] == {}
    )
