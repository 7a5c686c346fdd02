"""The definitions of the three demo boxes: data only."""

from __future__ import annotations

from rgt_tui.model import FrozenStruct

MIB = 1 << 20


class DiskPlan(FrozenStruct):
    """One disk of a demo box: a small tmpfs, so that bytes and inodes really run out."""

    path: str
    """Mount point on the box."""
    tier: str
    """The profile's storage tier that it represents."""
    size: int
    inodes: int
    survives_reboot: bool = True


class CellPlan(FrozenStruct):
    """One cell of a demo queue: its config, written to the box as ``configs/NAME.yaml``."""

    name: str
    epochs: int
    config: dict[str, str | int | float]


class DemoBox(FrozenStruct):
    """One box of the embedded fleet."""

    name: str
    profile: str
    gpu: str
    """Key of the GPU trace to replay."""
    per_hour: float
    """Cost of an hour on its platform without disks, in `currency`; the demo is not billed."""
    currency: str
    instance: str
    """Its instance ID on its platform."""
    memory_limit: int
    disks: tuple[DiskPlan, ...]
    data: str
    durable: str
    job: str
    cells: tuple[CellPlan, ...]
    retries: int = 0
    story: str = ""
    environment: dict[str, str] = {}
    """Environment variables that the platform sets for a login."""


MODEL: dict[str, str | int | float] = {
    "pace_ms": 50, "save_every": 40, "steps_per_epoch": 100,
    "width": 48, "layers": 1, "context": 48, "batch": 8, "corpus": 50_000,
}  # fmt: skip
"""A quarter of the default's work: three boxes train at once on one laptop, which also draws the
dashboard.
"""

FILL_DIR = "/workspace/.cache/viz"
"""Where the inode story's evaluation dump is written on `vast-demo`."""


# Seed and learning rate differ, so that the curves can be distinguished.
def _plan_cell(name: str, epochs: int, **config: str | int | float) -> CellPlan:
    return CellPlan(name=name, epochs=epochs, config={**MODEL, **config})


BOXES: tuple[DemoBox, ...] = (
    DemoBox(
        name="autodl-demo",
        profile="autodl",
        gpu="rtx4090",
        per_hour=1.98,
        currency="CNY",
        instance="pro-autodl-demo",
        # A process with torch has some 300 MB; a queue runs one at a time.
        memory_limit=1200 * MIB,
        disks=(
            DiskPlan("/", "system", 256 * MIB, 20_000),
            DiskPlan("/root/autodl-tmp", "data", 192 * MIB, 8_000),
            # The place that survives on the platform, as its profile says; so are the paths of the
            # others.
            DiskPlan("/root/autodl-fs", "shared-fs", 96 * MIB, 2_000),
        ),
        data="/root/autodl-tmp",
        durable="/root/autodl-fs",
        job="/root/jobs/sweep",
        cells=(
            _plan_cell("gpt-a", 2, seed=1, lr=0.003),
            _plan_cell("gpt-b", 2, seed=2, lr=0.002),
            _plan_cell("gpt-c", 2, seed=3, lr=0.001),
            _plan_cell("gpt-d", 2, seed=4, lr=0.0005),
        ),
        story="queue",
    ),
    DemoBox(
        name="runpod-demo",
        profile="runpod",
        gpu="a100",
        per_hour=0.69,
        currency="USD",
        instance="runpod-demo",
        memory_limit=1200 * MIB,
        disks=(
            # RunPod erases the container disk at each stop.
            DiskPlan("/", "container-disk", 256 * MIB, 20_000, survives_reboot=False),
            DiskPlan("/workspace", "volume-disk", 192 * MIB, 8_000),
            DiskPlan("/runpod-volume", "network-volume", 96 * MIB, 2_000),
        ),
        data="/workspace",
        durable="/runpod-volume",
        job="/workspace/jobs/spot",
        # Long enough to be preempted in the middle.
        cells=(_plan_cell("spot-lm", 20, seed=5, lr=0.002),),
        story="resume",
        environment={"RUNPOD_POD_ID": "runpod-demo"},
    ),
    DemoBox(
        name="vast-demo",
        profile="vastai",
        gpu="rtx3090",
        per_hour=0.42,
        currency="USD",
        instance="31415926",
        memory_limit=1200 * MIB,
        disks=(
            DiskPlan("/", "container-disk", 256 * MIB, 20_000),
            # Few inodes: the story fills them within seconds.
            DiskPlan("/workspace", "container-disk", 192 * MIB, 4_096),
            DiskPlan("/mnt/volume", "volume", 96 * MIB, 2_000),
        ),
        data="/workspace",
        durable="/mnt/volume",
        job="/root/jobs/lstm",
        cells=(
            _plan_cell("lstm-a", 20, seed=6, lr=0.002),
            _plan_cell("lstm-b", 2, seed=7, lr=0.001),
        ),
        story="inodes",
        environment={"CONTAINER_ID": "31415926"},
    ),
)
