"""A local control plane that answers like Featurize's: it releases instances and says nothing about them.

The call and its answers: featurize 0.0.27 on PyPI (2024-03).
"""

from __future__ import annotations

import re
from typing import Any

from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer, MachineChange

_RELEASE = re.compile(r"/bus/api/v1/virtual_machine/([^/]+)/release")


class LocalFeaturize(LocalServer):
    """A control plane on the loopback that answers like Featurize's; the arguments are those of `LocalServer`."""

    key_header = "Token"
    scheme = ""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.instances: set[str] = set()

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as Featurize does: most come with status 200."""
        return LocalResponse(
            status, {"status": status * 100 + 1, "message": text, "data": None}, headers or {}
        )

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        match = _RELEASE.fullmatch(request.path)
        if request.method != "POST" or match is None:
            return self.build_refusal(404, "no such call")
        instance = match[1]
        if instance not in self.instances:
            return LocalResponse(
                200, {"status": 40001, "message": "instance not found", "data": None}
            )

        async def released() -> None:
            if await self.notify_owner(MachineChange(instance, instance, "terminate")):
                self.instances.discard(instance)

        self.apply_later(released)
        return LocalResponse(200, {"status": 0, "message": "", "data": {}})
