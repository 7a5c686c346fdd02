"""A server that answers from a recording of `rgt doctor ACCOUNT --record`."""

from __future__ import annotations

from collections import deque
from typing import Any

from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer
from rgt_tui.model import ProviderRef
from rgt_tui.providers import Instance, Providers
from rgt_tui.providers.recording import RecordedExchange, Recording

KEY_ENV = "RGT_TEST_KEY"


class ReplayServer(LocalServer):
    """Answers from a recording: the same request first, else the next one to the same path."""

    def __init__(self, recording: Recording, **given: Any) -> None:
        super().__init__(**given)
        self._rest = deque(recording.exchanges)

    def answer_with_fault(self, request: LocalRequest) -> Any:
        self.requests = [*self.requests, f"{request.method} {request.path}"]
        same = [one for one in self._rest if self._fits(one, request)]
        if not same:
            return LocalResponse(404, {"error": "not recorded"}), None
        chosen = same[0]
        if len(same) > 1:
            self._rest.remove(chosen)
        return LocalResponse(chosen.status, chosen.answer, dict(chosen.headers)), None

    @staticmethod
    def _fits(one: RecordedExchange, request: LocalRequest) -> bool:
        return one.method == request.method and one.path.partition("?")[0] == request.path


async def replayed(recording: Recording) -> tuple[Instance, ...]:
    """List the machines of a recorded account."""
    server = ReplayServer(recording)
    await server.start()
    providers = Providers(env={KEY_ENV: "x"})
    try:
        return await providers.open_control_plane(
            ProviderRef(recording.kind, "", server.base_url, KEY_ENV)
        ).list()
    finally:
        await providers.close()
        await server.stop()
