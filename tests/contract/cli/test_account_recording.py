"""``rgt doctor ACCOUNT --record FILE``: a report of an account without anything of its owner."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec

from rgt_tui.providers.recording import Recording
from tests.contract.cli.conftest import Rgt
from tests.contract.providers.fakes.renting_vast import RentingVast
from tests.contract.providers.replaying import replayed


async def test_the_command_writes_a_file_without_anything_of_the_person(rgt: Rgt) -> None:
    server = RentingVast(settle_s=0.0)
    await server.start()
    one = server.add_instance(
        31415926, "secret-project", created=server.clock() - 3600, volumes=(77777,)
    )
    one.host, one.port = "203.0.113.77", 40123
    server.volumes[77777] = 50.0
    rgt.env["RGT_TEST_KEY"] = server.key
    table = f'kind = "vastai"\ninstance = "31415926"\nbase_url = "{server.base_url}"\nkey_env = "RGT_TEST_KEY"\n'
    rgt.write(
        f'[boxes.lab]\nhost = "203.0.113.77"\nprofile = "vastai"\n[boxes.lab.provider]\n{table}'
    )
    path = rgt.folder / "vast.json"
    try:
        done = await asyncio.to_thread(rgt.on, "doctor", "lab", "--record", str(path))
        assert done.returncode == 0, done.stderr
        again = await asyncio.to_thread(rgt.on, "doctor", "vastai", "--record", str(path))
        assert again.returncode == 2 and "exists already" in again.stderr
    finally:
        await server.stop()
    text = path.read_text()
    for secret in (
        server.key,
        "secret",
        "203.0.113.77",
        "40123",
        "31415926",
        "77777",
        "a@example.org",
        "23.45",
    ):
        assert secret not in text, secret
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    found = json.loads(text)
    assert (found["kind"], found["failed"]) == ("vastai", [])
    paths = [one["path"].partition("?")[0] for one in found["exchanges"]]
    assert {
        "/api/v1/instances/",
        "/api/v0/charges/",
        "/api/v0/volumes/",
        "/api/v0/bundles/",
    } <= set(paths)
    (machine,) = await replayed(msgspec.json.decode(text.encode(), type=Recording))
    assert machine.meter.booked is not None, "the charges still belong to the instance"


async def test_what_is_no_account_is_named(rgt: Rgt) -> None:
    path = str(rgt.folder / "x.json")
    for words, reason in (
        (["acme"], "no provider called 'acme'"),
        ([], "takes one account"),
        (["slurm"], "has no HTTP API"),
    ):
        done = await asyncio.to_thread(rgt, "doctor", *words, "--record", path)
        assert done.returncode != 0
        assert reason in done.stderr
    assert not Path(path).exists()
