"""A limit on how long a connection may take, that stands still while a person thinks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from types import TracebackType


class Deadline:
    """An `asyncio.timeout` whose end can be moved from other tasks."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._open = 0

    async def __aenter__(self) -> Deadline:
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._timeout is not None
        timeout, self._timeout = self._timeout, None
        await timeout.__aexit__(kind, error, trace)

    @property
    def runs(self) -> bool:
        """It will end by itself."""
        return self._timeout is not None and self._timeout.when() is not None

    def extend(self, seconds: float) -> None:
        """Let it end so many seconds from now."""
        if self._timeout is not None and not self._timeout.expired() and not self._open:
            self._timeout.reschedule(asyncio.get_running_loop().time() + seconds)

    @contextlib.contextmanager
    def open_end(self, seconds: float) -> Iterator[None]:
        """Have no end inside; behind it, end so many seconds later."""
        self._open += 1
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._open -= 1
            self.extend(seconds)
