"""The room in which the boxes stand: it holds their disks while they reboot."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from rgt_tui.demo.plan import DemoBox
from rgt_tui.demo.sandbox import modes
from rgt_tui.demo.sandbox.keeper import Keeper
from rgt_tui.demo.workspace import MARKER_ENV

HERE = Path(__file__).parent


class Room:
    """One mount namespace with a tmpfs for every disk that survives a reboot."""

    def __init__(self, root: Path, boxes: tuple[DemoBox, ...]) -> None:
        self._root = root
        self._boxes = boxes
        self._keeper = Keeper("the demo's disks")

    def disk(self, box: str, mount: str) -> Path:
        """Return where the room keeps the disk that `box` mounts at `mount`."""
        return self._root / "disks" / box / (mount.strip("/").replace("/", "_") or "root")

    async def start(self) -> None:
        """Mount the disks."""
        disks = [
            {"path": str(self.disk(box.name, disk.path)), "size": disk.size, "inodes": disk.inodes}
            for box in self._boxes
            for disk in box.disks
            if disk.survives_reboot
        ]
        script = [sys.executable, "-I", "-S", str(HERE / "room_init.py"), json.dumps({"disks": disks})]
        env = {**os.environ, MARKER_ENV: str(self._root)}
        await self._keeper.start(["unshare", *modes.unshare_prefix(), "--mount", *script], env)

    def enter(self) -> list[str]:
        """Return the command prefix that runs something inside the room."""
        return ["nsenter", "--target", str(self._keeper.pid), *modes.enter_user_prefix(), "--mount"]

    async def stop(self) -> None:
        """Drop the disks."""
        await self._keeper.stop()
