"""A provider is one module and one row: the skeleton that CONTRIBUTING.md names, followed to the meter's end."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import (
    BillingVerb,
    Leftover,
    Lifecycle,
    Meter,
    MeterKind,
    Permit,
    ProviderRef,
    StopPhase,
    steady_time,
)
from rgt_tui.providers import (
    IN_BOX,
    KINDS,
    AccountContext,
    AnswerProof,
    Instance,
    LazyAdapter,
    Market,
    PermitRefused,
    ProviderError,
    Providers,
    carry_out,
    use_permit,
)
from rgt_tui.providers.answers import Answers, action_proof
from rgt_tui.providers.http import AccountHttp, open_http
from rgt_tui.providers.registry import CONSOLES
from tests.contract.providers.conftest import permit_for

# What stands in a module of its own: rgt_tui/providers/acme.py

STATES = {"on": Lifecycle.RUNNING, "off": Lifecycle.STOPPED, "deleted": Lifecycle.GONE}
METERS = {
    Lifecycle.RUNNING: MeterKind.COMPUTE_AND_STORAGE,
    Lifecycle.STOPPED: MeterKind.STORAGE_ONLY,
    Lifecycle.GONE: MeterKind.NONE,
}


REFUSALS: dict[int | str, AnswerProof] = {
    401: AnswerProof.NOTHING,
    404: AnswerProof.ASK,
    429: AnswerProof.NOTHING,
}
ANSWERS: Answers = dict.fromkeys(BillingVerb, REFUSALS)


class Machine(msgspec.Struct, frozen=True):
    """What is used of Acme's answer."""

    id: str
    state: str
    usd_per_hour: float | None = None


class AcmeAccount:
    """One account: its machines, by one connection."""

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        self.ref, self.http, self.clock = ref, http, clock

    def open_control_plane(self, instance: str) -> Acme:
        return Acme(self, instance)

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        raise ProviderError("Acme has no call for it", sent=False)

    def open_market(self) -> Market | None:
        return None

    async def close(self) -> None:
        await self.http.close()

    def meter(self, machine: Machine) -> Meter:
        life = STATES.get(machine.state, Lifecycle.UNKNOWN)
        return Meter(
            kind=METERS.get(life, MeterKind.UNKNOWN),
            lifecycle=life,
            per_hour=machine.usd_per_hour,
            at=self.clock(),
            source=f"Acme at {self.http.host}",
            native_status=machine.state,
            actions=("stop", "delete") if life is Lifecycle.RUNNING else ("delete",),
        )


class Acme:
    """One machine's control plane."""

    def __init__(self, account: AcmeAccount, instance: str) -> None:
        self._account, self._instance = account, instance

    @property
    def ref(self) -> ProviderRef:
        return msgspec.structs.replace(self._account.ref, instance=self._instance)

    @property
    def instance(self) -> str:
        return self._instance

    @property
    def console_url(self) -> str:
        return self._account.http.console

    async def read(self, instance: str) -> Meter:
        try:
            data = (await self._account.http.get(f"/machines/{instance}")).data
            return self._account.meter(msgspec.convert(data, Machine))
        except (ProviderError, msgspec.ValidationError) as error:
            return Meter(at=self._account.clock(), source="Acme", error=str(error))

    async def list(self) -> tuple[Instance, ...]:
        data = (await self._account.http.get("/machines")).data
        machines = msgspec.convert(data, tuple[Machine, ...])
        return tuple(
            Instance(machine.id, machine.id, self._account.meter(machine)) for machine in machines
        )

    async def start(self) -> str:
        raise ProviderError("Acme has no such verb", sent=False)

    async def stop(self, permit: Permit) -> str:
        return await self._act(permit, BillingVerb.PARK)

    async def destroy(self, permit: Permit) -> str:
        return await self._act(permit, BillingVerb.DESTROY)

    async def _act(self, permit: Permit, verb: BillingVerb) -> str:
        use_permit(permit, verb, self.ref, steady_time())
        method, path = self._call(verb, self._instance)
        return f"Acme answered {(await self._account.http.send(method, path)).status}"

    @staticmethod
    def _call(verb: BillingVerb, instance: str) -> tuple[str, str]:
        path = f"/machines/{instance}"
        return ("POST", f"{path}/stop") if verb is BillingVerb.PARK else ("DELETE", path)

    def describe_call(self, verb: BillingVerb, instance: str) -> str:
        return " ".join(self._call(verb, instance))

    def native_label(self, verb: BillingVerb) -> str:
        return self.native_action(verb).capitalize()

    def native_action(self, verb: BillingVerb) -> str:
        return "stop" if verb is BillingVerb.PARK else "delete"

    def list_kept_charges(self, verb: BillingVerb, instance: str) -> tuple[str, ...]:
        return ("the disk",) if verb is BillingVerb.PARK else ()

    def list_tiers(self, instance: str) -> dict[str, str]:
        return {}


def open_account(ref: ProviderRef, context: AccountContext) -> AcmeAccount:
    http = open_http(
        ref,
        context,
        vendor="https://api.acme.example",
        console="https://acme.example",
        key_env="ACME_KEY",
    )
    return AcmeAccount(ref, http, context.clock)


# The test: the row, and a server that speaks as Acme's documentation says.


class Server:
    """Acme's API on the loopback."""

    def __init__(self) -> None:
        self.states = {"m1": "on", "m2": "on"}
        self.calls: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                server.calls.append(f"{self.command} {self.path}")
                _, _, name, *rest = [*self.path.split("/"), ""]
                if self.headers["Authorization"] != "Bearer secret":
                    self.send_error(401)
                    return
                if self.command == "POST" and rest[0] == "stop":
                    server.states[name] = "off"
                elif self.command == "DELETE":
                    server.states[name] = "deleted"
                rows = [
                    {"id": key, "state": state, "usd_per_hour": 1.5}
                    for key, state in server.states.items()
                ]
                body = json.dumps(
                    rows if not name else next(row for row in rows if row["id"] == name)
                )
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))
        self.thread.start()

    def ref(self, instance: str) -> ProviderRef:
        return ProviderRef(
            "acme", instance, f"http://127.0.0.1:{self.http.server_port}", "SOME_KEY"
        )

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setitem(KINDS, "acme", LazyAdapter(__name__))
    found = Server()
    yield found
    found.close()


async def pause(_seconds: float) -> None:
    pass


@pytest.mark.parametrize("verb", list(BillingVerb))
async def test_a_provider_of_one_module_and_one_row_tells_and_stops_the_meter(
    server: Server, verb: BillingVerb
) -> None:
    providers = Providers(env={"SOME_KEY": "secret"})
    try:
        meters = await providers.poll_meters([server.ref("m1"), server.ref("m2")])
        assert {
            ref.instance: (meter.per_hour, meter.lifecycle) for ref, meter in meters.items()
        } == {
            "m1": (1.5, Lifecycle.RUNNING),
            "m2": (1.5, Lifecycle.RUNNING),
        }
        assert server.calls == ["GET /machines"]
        permit = permit_for(server.ref("m1"), verb, expires=steady_time() + 600)
        steps = carry_out(
            providers.open_control_plane(server.ref("m1")), permit, clock=time.time, sleep=pause
        )
        assert [step.phase async for step in steps][-1] is StopPhase.METER_OFF
    finally:
        await providers.close()
    assert [call for call in server.calls if not call.startswith("GET")] == [
        "POST /machines/m1/stop" if verb is BillingVerb.PARK else "DELETE /machines/m1"
    ]
    assert server.states["m2"] == "on"


def test_what_its_answers_prove_stands_in_its_module(server: Server) -> None:
    for verb in BillingVerb:
        assert action_proof("acme", verb, ProviderError("?", status=401)) is AnswerProof.NOTHING
        assert action_proof("acme", verb, ProviderError("?", status=403)) is AnswerProof.MAYBE
        assert action_proof("acme", verb, ProviderError("?", status=500)) is AnswerProof.MAYBE


INSTANCES = {
    "autodl": "pro-m1",
    "digitalocean": "510000001",
    "dstack": "main/lab/0",
    "kubernetes": "ml/job/m1",
    "slurm": "4711",
    "vastai": "31415926",
}
"""How a machine is called where it is not any word."""
REFUSES = {
    *((kind, verb) for kind in (*CONSOLES, *IN_BOX) for verb in BillingVerb),
    *(
        (kind, BillingVerb.PARK)
        for kind in ("digitalocean", "dstack", "featurize", "lambda", "slurm")
    ),
}
"""Verbs that a platform has not, or that a person carries out: the permit is used up, and nothing is sent."""


def programs(folder: Path) -> Path:
    """Make commands that note how they were called, for the platforms that are asked by their own."""
    noted = folder / "noted"
    noted.touch()
    for name in ("scancel", "kubectl", "squeue", "sacct"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {noted}\n')
        (folder / name).chmod(0o755)
    return noted


@pytest.mark.parametrize("kind", [*KINDS, "acme"])
@pytest.mark.parametrize("verb", list(BillingVerb))
async def test_no_provider_acts_without_a_permit_that_fits(
    kind: str, verb: BillingVerb, server: Server, tmp_path: Path
) -> None:
    noted = programs(tmp_path)

    def calls() -> int:
        return len(server.calls) + len(noted.read_text().splitlines())

    env = {"SOME_KEY": "secret", "PATH": str(tmp_path)}
    providers = Providers(env=env)
    provider = providers.open_control_plane(
        msgspec.structs.replace(server.ref(INSTANCES.get(kind, "m1")), kind=kind)
    )
    other = next(one for one in BillingVerb if one is not verb)
    now = steady_time()
    fits = permit_for(provider.ref, verb)
    act = provider.stop if verb is BillingVerb.PARK else provider.destroy
    for change in (
        {"verb": other},
        {"kind": "nimbus"},
        {"kind": ""},
        {"account": "OTHER_KEY@vendor"},
        {"account": ""},
        {"instance": "m2"},
        {"expires": now - 1},
        {"expires": float("nan")},
        {"nonce": ""},
    ):
        with pytest.raises(PermitRefused):
            await act(msgspec.structs.replace(fits, **change))
    assert calls() == 0
    sent = 0 if (kind, verb) in REFUSES else 1
    # The server speaks as one of them.
    with contextlib.suppress(ProviderError, *((PermitRefused,) if not sent else ())):
        await act(fits)
    assert calls() == sent
    with pytest.raises(PermitRefused, match="used already"):
        await act(fits)
    await providers.close()
    again = Providers(env=env)
    same = again.open_control_plane(provider.ref)
    with pytest.raises(PermitRefused, match="used already"):
        await (same.stop if verb is BillingVerb.PARK else same.destroy)(fits)
    await again.close()
    assert calls() == sent


def test_the_recipe_touches_three_files_and_names_what_is_there() -> None:
    root = Path(__file__).parents[3]
    text = (root / "CONTRIBUTING.md").read_text()
    (recipe,) = re.findall(r"^\*\*a provider\*\*.*?(?=^\*\*)", text, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^\d\. (.*?)(?=^\d\. |\Z)", recipe, re.MULTILINE | re.DOTALL)
    assert len(steps) <= 3
    named = re.findall(r"`((?:rgt_tui|profiles|tests)/[\w/.]+)`", recipe)
    assert str(Path(__file__).relative_to(root)) in named
    for path in named:
        if "NAME" not in path:
            assert (root / path).is_file(), path
    assert "open_account" in steps[0]
    assert "ANSWERS" in steps[0]
    assert "KINDS" in steps[1]
