"""The vendors' own clients are the judges of the servers that the adapters are tested with."""

from __future__ import annotations

import json
import os

import pytest

from tests.contract.providers.client_exchanges import (
    CLIENTS,
    Client,
    installed_version,
    record,
    replay,
    run_client,
)

EACH = pytest.mark.parametrize("client", CLIENTS, ids=[client.package for client in CLIENTS])


@pytest.mark.services
@EACH
async def test_every_call_of_the_vendors_client_works_against_our_server(client: Client) -> None:
    version = await installed_version(client.package)
    assert version is not None, f"needs {client.package} in .venv-services: make services"
    server = client.world()
    await server.start()
    try:
        exchange = record(server)
        rows = await run_client(client, server)
        await server.wait_settled()
    finally:
        await server.stop()
    assert len(rows) > 8
    assert [f"{row['call']}: {row['error']}" for row in rows if row["error"]] == []
    assert [row["call"] for row in rows if not row["found"]] == [], (
        "an answer that has nothing in it"
    )
    if os.environ.get("RGT_UPDATE_CLIENTS"):
        found = {"client": f"{client.package} {version}", "calls": [row["call"] for row in rows]}
        client.recording.write_text(json.dumps({**found, "exchange": exchange}, indent=1) + "\n")
    known = json.loads(client.recording.read_text())["exchange"]
    sent, recorded = ([(row["method"], row["path"]) for row in rows] for rows in (exchange, known))
    assert sent == recorded, "RGT_UPDATE_CLIENTS=1 records them again"


@EACH
async def test_what_the_vendors_client_sends_is_still_answered_as_it_needs(client: Client) -> None:
    server = client.world()
    await server.start()
    try:
        assert await replay(client, server) == []
    finally:
        await server.stop()
