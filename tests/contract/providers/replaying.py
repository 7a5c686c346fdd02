"""A server that answers from a recording of `rgt doctor ACCOUNT --record`."""

from __future__ import annotations

from collections import deque
from typing import Any

from rgt_tui.demo.platforms import LocalServer, Request, Response
from rgt_tui.model import ProviderRef
from rgt_tui.providers import Instance, Providers
from rgt_tui.providers.recording import Recorded, Recording

KEY_ENV = "RGT_TEST_KEY"


class ReplayServer(LocalServer):
    """Answers from a recording: the same request first, else the next one to the same path."""

    def __init__(self, recording: Recording, **given: Any) -> None:
        super().__init__(**given)
        self._rest = deque(recording.exchanges)

    def answer(self, request: Request) -> Any:
        self.requests = [*self.requests, f"{request.method} {request.path}"]
        same = [one for one in self._rest if self._fits(one, request)]
        if not same:
            return Response(404, {"error": "not recorded"}), None
        chosen = same[0]
        if len(same) > 1:
            self._rest.remove(chosen)
        return Response(chosen.status, chosen.answer, dict(chosen.headers)), None

    @staticmethod
    def _fits(one: Recorded, request: Request) -> bool:
        return one.method == request.method and one.path.partition("?")[0] == request.path


async def replayed(recording: Recording) -> tuple[Instance, ...]:
    """List the machines of a recorded account."""
    server = ReplayServer(recording)
    await server.start()
    providers = Providers(env={KEY_ENV: "x"})
    try:
        return await providers.open(
            ProviderRef(recording.kind, "", server.base_url, KEY_ENV)
        ).list()
    finally:
        await providers.close()
        await server.stop()
