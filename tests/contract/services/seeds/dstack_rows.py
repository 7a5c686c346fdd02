"""Puts rows into a dstack server's database, by the server's own models; runs with the server's Python."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any

from dstack._internal.core.models.backends.base import BackendType
from dstack._internal.core.models.instances import InstanceStatus
from dstack._internal.core.models.profiles import TerminationPolicy
from dstack._internal.core.models.runs import JobStatus, RunStatus
from dstack._internal.core.models.volumes import VolumeStatus
from dstack._internal.server.db import get_session_ctx
from dstack._internal.server.models import ProjectModel, UserModel
from dstack._internal.server.testing import common
from sqlalchemy import select

HOSTS = {"provisioning": None, "pending": None}


async def main() -> None:
    """Make a fleet with an instance in each state, one whose number was used before, a run and a volume."""
    async with get_session_ctx() as session:
        project = (
            await session.execute(select(ProjectModel).where(ProjectModel.name == "main"))
        ).scalar_one()
        user = (await session.execute(select(UserModel))).scalars().first()
        lab = await common.create_fleet(session, project, name="lab")
        instances = {}
        for number, status in enumerate(InstanceStatus):
            instances[status.value] = await _add(session, project, lab, number, status, number + 1)
        again = await common.create_fleet(session, project, name="again")
        await _add(session, project, again, 0, InstanceStatus.TERMINATED, 101)
        await _add(session, project, again, 0, InstanceStatus.IDLE, 102)
        repo = await common.create_repo(session, project.id)
        run = await common.create_run(
            session, project, repo, user, fleet=lab, run_name="train", status=RunStatus.RUNNING
        )
        await common.create_job(
            session, run, fleet=lab, status=JobStatus.RUNNING, instance=instances["busy"], instance_assigned=True,
            job_provisioning_data=_provisioned(InstanceStatus.BUSY, 4),
        )  # fmt: skip
        await common.create_volume(
            session, project, user, status=VolumeStatus.ACTIVE, backend=BackendType.RUNPOD, region="EU-RO-1",
            volume_provisioning_data=common.get_volume_provisioning_data(),
        )  # fmt: skip


def _provisioned(status: InstanceStatus, number: int) -> Any:
    found = common.get_job_provisioning_data(
        dockerized=True, backend=BackendType.RUNPOD, region="EU-RO-1", gpu_count=1, gpu_name="RTX4090",
        gpu_memory_gib=24, hostname=HOSTS.get(status.value, f"203.0.113.{number}"), internal_ip=None, price=0.69,
    )  # fmt: skip
    found.instance_id = f"k3v9q0x1fake{number:02}"
    return found


async def _add(
    session: Any, project: ProjectModel, fleet: Any, number: int, status: InstanceStatus, ident: int
) -> Any:
    offer = common.get_instance_offer_with_availability(
        backend=BackendType.RUNPOD,
        region="EU-RO-1",
        gpu_count=1,
        gpu_name="RTX4090",
        gpu_memory_gib=24,
        price=0.69,
    )
    return await common.create_instance(
        session, project, fleet, status=status, instance_num=number, instance_id=uuid.UUID(int=ident),
        name=f"{fleet.name}-{number}", backend=BackendType.RUNPOD, region="EU-RO-1", price=0.69, offer=offer,
        job_provisioning_data=None if status is InstanceStatus.PENDING else _provisioned(status, ident),
        created_at=datetime(2026, 11, 20, 8, ident % 60, tzinfo=UTC),
        termination_policy=TerminationPolicy.DONT_DESTROY, busy_blocks=int(status is InstanceStatus.BUSY),
    )  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
