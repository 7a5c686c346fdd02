"""The rows of platforms that tell nothing of their machines: a person clicks, the box does it, or one call releases."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt_tui.providers.console import BoxSighting
from tests.contract.providers.conftest import START
from tests.contract.providers.fakes.local_commands import LocalCommands, Says
from tests.contract.providers.fakes.local_featurize import LocalFeaturize
from tests.contract.providers.platform_outcomes import OUTCOMES, Row
from tests.contract.providers.rows_by_command import BY_HAND

CONSOLE = "only its console tells it"
NOTHING_SENT = "nothing is sent: a person clicks"
NO_CALL = "the platform has no such action"
HANDS: Mapping[str | tuple[str, str], str] = {
    **dict.fromkeys(("list", "read", "leftovers", "balance", "spend"), CONSOLE),
    **dict.fromkeys(("offers", "find", "create"), "machines are rented on the console"),
    "start": "machines are started on the console",
}
CLICKED: Mapping[str | tuple[str, str], str] = {
    **HANDS,
    **{
        (verb, fault): NOTHING_SENT
        for verb, fault in OUTCOMES
        if verb in ("park", "destroy") and fault not in ("", "done by hand")
    },
}
INSTANCE = "instance-7"


@dataclass
class Seen:
    """What is seen of a box from here; nothing is sent to its platform."""

    now: float = START
    off: bool = False
    requests: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    met: int = 0

    def sight(self) -> BoxSighting:
        """Tell whether the box answers."""
        return BoxSighting(answers=not self.off, heard=self.now - 300 if self.off else self.now)

    def click(self) -> None:
        """Switch the box off, as a person does on the console."""
        self.off, self.met = True, self.met + 1

    async def start(self) -> None:
        """There is nothing to start."""

    async def stop(self) -> None:
        """Nor to stop."""

    async def wait_settled(self) -> None:
        """What was clicked is so."""


class InTheBox(LocalCommands):
    """A box with a command that switches it off, run over a line that may be lost."""

    def __init__(self) -> None:
        off = {"on": {"shutdown": Says(then="gone")}, "gone": {"shutdown": Says()}}
        super().__init__(off)

    def sight(self) -> BoxSighting:
        """Tell whether the box answers."""
        off = self.state == "gone"
        return BoxSighting(answers=not off, heard=START - 300)

    def click(self) -> None:
        """Switch the box off on the console."""
        (self.folder / "now").write_text("gone\n")
        self._always += 1

    @property
    def shutdown(self) -> Path:
        """The command on the box."""
        return self.command("shutdown")

    async def run(self, command: str) -> int | None:
        """Run a command on the box; None = the line was lost, as it is when the shell of it is killed."""
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, stderr=asyncio.subprocess.DEVNULL
        )
        status = await process.wait()
        return None if status in (-9, 137) else status


def featurize(**given: Any) -> LocalFeaturize:
    server = LocalFeaturize(**given)
    server.instances.add(INSTANCE)
    return server


def clicked(kind: str, *verbs: str) -> Row:
    """Return the row of a platform without an API, which has these verbs on its console."""
    return Row(
        kind=kind,
        make=lambda **_: Seen(),
        machine=INSTANCE,
        on=dict.fromkeys(verbs, ""),
        truth=lambda seen, _: "gone" if seen.off else "on",
        lacks={**dict.fromkeys({"park", "destroy"} - set(verbs), NO_CALL), **CLICKED},
        differs={(verb, ""): "nobody knows" for verb in verbs},
    )


RELEASE = f"POST /bus/api/v1/virtual_machine/{INSTANCE}/release"
BY_HAND_ROWS = (
    Row(
        kind="autodl-inbox",
        make=lambda **_: InTheBox(),
        machine=INSTANCE,
        on={"park": "shutdown", "destroy": ""},
        truth=lambda box, _: str(box.state),
        breaks={"401": {"status": 126}, "500": {"status": 3}},
        lacks={
            **{
                key: why
                for key, why in CLICKED.items()
                if not isinstance(key, tuple) or key[0] == "destroy"
            },
            **dict.fromkeys(
                (("park", "429"), ("park", "429 that says when"), ("park", "an error at 200")),
                "a command on the box has none",
            ),
            ("park", "twice"): "a box that is off runs nothing",
            ("park", "no end"): "the line's own time-out makes it *no answer*",
            ("park", "done by hand"): BY_HAND,
        },
        differs={
            **{(verb, ""): "probably off, not confirmed" for verb in ("park",)},
            ("destroy", ""): "nobody knows",
            **{
                ("park", f"{what}, done{rest}"): "probably off, not confirmed"
                for what, rest in (
                    ("500", " all the same"),
                    ("no answer", " all the same"),
                    ("2xx of no known shape", ""),
                )
            },
        },
    ),
    Row(
        kind="featurize",
        make=featurize,
        machine=INSTANCE,
        on={"destroy": RELEASE},
        truth=lambda server, one: "on" if one in server.instances else "gone",
        error=b'{"status": 40001, "message": "busy", "data": null}',
        yes=b'{"status": 0, "message": "", "data": {}}',
        lacks={
            **HANDS,
            "park": NO_CALL,
            "done by hand": BY_HAND,
            "no end": "the time-out makes it *no answer*",
        },
        # No call tells what came of it, and its codes stand nowhere.
        differs={
            ("destroy", fault): "nobody knows"
            for verb, fault in OUTCOMES
            if verb == "destroy" and fault not in ("not reachable", "done by hand", "no end")
        },
    ),
    clicked("gpushare", "park", "destroy"),
    clicked("lanrui", "park"),
    clicked("matpool", "destroy"),
    clicked("paperspace-gradient", "park", "destroy"),
)
