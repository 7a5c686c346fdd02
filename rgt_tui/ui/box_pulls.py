"""Pulls in progress, owned by the app, so that they continue after their page is closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual.worker import Worker

from rgt_tui.fleet import FleetSource, PullResult
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.ui.commands import key_for
from rgt_tui.ui.notation import make_displayable

if TYPE_CHECKING:
    from textual.app import App

    from rgt_tui.profiles import TransferCost
    from rgt_tui.transfer.copying import PullProgress

KEPT_FILES = "files that have arrived are kept; the next pull resumes"


class BoxPull(FrozenStruct):
    """One pull of directories of a box."""

    paths: tuple[str, ...]
    progress: PullProgress | None = None
    plan: str = ""
    """What is fetched, where to, and what its traffic costs; empty = not known yet."""
    asks: TransferCost | None = None
    """The price that the person must agree to before the first byte; None = none, or agreed."""
    end: PullResult | None = None
    stopped: bool = False
    """Whether the person stopped it."""
    cut_off: bool = False
    """Whether its rgt ended before it did."""
    began_at: float | None = None
    """Client clock."""
    ended_at: float | None = None
    """Client clock; None = running."""
    unseen: bool = False
    """It ran when its box last reported; whether it still does is unknown."""

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self.ended_at is None and not self.unseen


class BoxPulls:
    """The newest pull of each box.

    Args:
        app: Runs the pulls, and shows the result of one whose page was closed.
    """

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._pulls: dict[str, BoxPull] = {}
        self._past: list[tuple[str, BoxPull]] = []
        self._workers: dict[str, Worker[None]] = {}
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._agreed: dict[str, tuple[frozenset[str], TransferCost]] = {}
        """Paths and price that were agreed to for the newest pull of each box; removed when it
        completes."""

    def find_pull(self, box: str) -> BoxPull | None:
        """Return the newest pull of a box, running or ended."""
        return self._pulls.get(box)

    def list_pulls(self) -> list[tuple[str, BoxPull]]:
        """Return all pulls of this rgt with their boxes: running ones first, then by end."""
        known = [*self._past, *self._pulls.items()]
        return sorted(
            known,
            key=lambda one: (not one[1].is_running, -(one[1].ended_at or one[1].began_at or 0.0)),
        )

    def start(self, fleet: FleetSource, box: str, paths: tuple[str, ...]) -> None:
        """Pull directories of a box, unless a pull of it is running."""
        before = self._pulls.get(box)
        if before is not None and before.is_running:
            return
        if before is not None:
            # Maximum ended pulls in the list, besides the newest one of each box.
            most_past = 50
            self._past = [*self._past, (box, before)][-most_past:]
        self._pulls[box] = BoxPull(paths, began_at=fleet.now())
        self._workers[box] = self._app.run_worker(
            self._run_pull(fleet, box, paths),
            group=f"pull:{box}",
            exit_on_error=False,
            description=f"pull from {box}",
        )
        self._notify_page(box)

    def agree_to_cost(self, box: str) -> None:
        """Agree to the traffic price of a pull; it continues, and asks no more if it is resumed."""
        answer = self._answers.get(box)
        if answer is not None and not answer.done():
            answer.set_result(None)

    async def _wait_for_agreement(
        self, box: str, paths: tuple[str, ...], toll: TransferCost
    ) -> bool:
        """Wait until the price is agreed to; to refuse, the person stops the pull."""
        told, before = self._agreed.get(box, (frozenset(), None))
        # A pull that continues asks again only if it fetches other paths or costs more.
        if before is not None and told >= set(paths) and before.covers_cost(toll):
            return True
        self._answers[box] = asyncio.get_running_loop().create_future()
        self._update_pull(box, asks=toll)
        try:
            await self._answers[box]
        finally:
            del self._answers[box]
            self._update_pull(box, asks=None)
        self._agreed[box] = frozenset(paths), toll
        return True

    def stop(self, box: str) -> None:
        """Stop the pull of a box; the files that arrived are kept."""
        pull = self._pulls.get(box)
        if pull is not None and pull.is_running:
            # Set before the worker ends: no result is shown for a pull that the person stopped.
            self._pulls[box] = replace(pull, stopped=True)
            self._workers[box].cancel()

    async def _run_pull(self, fleet: FleetSource, box: str, paths: tuple[str, ...]) -> None:
        def apply_progress(look: PullProgress) -> None:
            self._update_pull(box, progress=look)

        def apply_plan(text: str) -> None:
            self._update_pull(box, plan=text)

        async def request_agreement(toll: TransferCost) -> bool:
            return await self._wait_for_agreement(box, paths, toll)

        try:
            end = await fleet.pull_directories(
                box, paths, apply_progress, apply_plan, request_agreement
            )
            # The agreed price stays valid for what a pull that was cut off has yet to fetch.
            if end.whole:
                self._agreed.pop(box, None)
        except asyncio.CancelledError:
            self._update_pull(
                box,
                end=PullResult(
                    whole=False,
                    text=translate("stopped; {kept}", kept=translate(KEPT_FILES)),
                ),
                ended_at=fleet.now(),
            )
            raise
        # after any failure the person must see that the results are not here
        except Exception as error:
            text = str(error) or type(error).__name__
            end = PullResult(whole=False, text=text)
        self._update_pull(box, end=end, ended_at=fleet.now())

    def _update_pull(self, box: str, **changes: Any) -> None:
        pull = self._pulls[box]
        if pull.is_running:  # progress that arrives after the end is outdated
            self._pulls[box] = replace(pull, **changes)
            self._notify_page(box)

    def _notify_page(self, box: str) -> None:
        """Update the page of the box.

        Without an open page, show the price question or the result.
        """
        if not self._app.is_running:
            return
        shown = False
        for screen in self._app.screen_stack:
            moved = getattr(screen, "pull_moved", None)
            # A screen without a box, such as the list of transfers, shows the pulls of all boxes.
            if callable(moved) and getattr(screen, "box_name", None) in (box, None):
                moved()
                shown = True
        pull = self._pulls[box]
        if not shown and pull.asks is not None:
            page = translate("the tear-down page ({key})", key=key_for("box.teardown"))
            text = translate(
                "{box}: fetch {size_and_price}? Answer on {page}",
                box=box,
                size_and_price=pull.asks.size_and_price,
                page=page,
            )
            self._app.notify(make_displayable(text), severity="warning", timeout=60, markup=False)
        if shown or pull.end is None or pull.stopped:
            return
        text = translate("{box}: the pull ended: {words}", box=box, words=pull.end.text)
        if pull.end.whole:
            text = translate("{box}: pulled: {words}", box=box, words=pull.end.text)
        # A failure is a toast, which is seen on every screen.
        hint = getattr(self._app.screen, "hint", None)
        if pull.end.whole and callable(hint):
            # How long a pull's result is shown on the top screen.
            told_seconds = 30.0
            hint(text, told_seconds)
        else:
            self._app.notify(
                make_displayable(text),
                severity="information" if pull.end.whole else "error",
                timeout=60,
                markup=False,
            )
