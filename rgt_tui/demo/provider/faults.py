"""Misbehaviour on demand: what real control planes do on their bad days, for tests and for showing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rgt_tui.demo.provider.wire import Response, problem


@dataclass
class Fault:
    """What goes wrong with the next matching requests. Only one fault is used per request, the oldest first.

    Example:
        A timeout after the server has acted::

            provider.inject(Fault(on="POST /v2/pods/", act=True, hang=True))
    """

    on: str = ""
    """Start of ``METHOD /path``; empty = every request."""
    status: int | None = None
    """Answer with this error instead, as problem+json."""
    headers: dict[str, str] = field(default_factory=dict)
    """Extra headers, e.g. ``{"Retry-After": "7"}``."""
    raw: bytes | None = None
    """Answer with these bytes as the body."""
    change: Callable[[object], object] | None = None
    """Edit the JSON of the true answer."""
    act: bool = False
    """Carry the request out before misbehaving. Without it a hang or an error status leaves all as it is."""
    hang: bool = False
    """Never answer."""
    cut: int | None = None
    """Send only so many bytes of the answer's body, then close the connection."""
    times: int = 1
    """How many requests; a negative number = all."""

    def matches(self, what: str) -> bool:
        """Tell whether this fault is due for ``METHOD /path``; uses one of its `times` up if so."""
        if self.times == 0 or not what.startswith(self.on):
            return False
        self.times -= 1
        return True

    @property
    def needs_answer(self) -> bool:
        """Whether the request is carried out at all."""
        return self.act or (self.status is None and not self.hang)

    def distort(self, answer: Response) -> Response:
        """Return what is sent instead of the true answer."""
        headers = {**answer.headers, **self.headers}
        if self.status is not None:
            return problem(self.status, "injected fault", headers)
        data = answer.data if self.change is None else self.change(answer.data)
        return Response(status=answer.status, data=data, headers=headers, raw=self.raw)
