"""Decides which job owns the files in its working directory.

rgt knows the files it pushed, so all others there belong to the job. For pushed code, the whole
pushed version counts; otherwise the working directory. Shared directories (a home directory, the
root of a disk) belong to no job.
"""

from __future__ import annotations

import os

from rgt_box.commands import result_walk
from rgt_box.push import push_staging
from rgt_box.queue import queue_file, queue_state


def find_job_folder(workdir: str) -> tuple[str, bool] | None:
    """Return the directory that belongs to a job in `workdir`, and whether it is pushed code.

    None if the directory is shared by everyone or missing.
    """
    workdir = os.path.realpath(workdir)
    pushed = push_staging.version_around(workdir)
    if pushed is not None:
        return pushed.folder, True
    if not os.path.isdir(workdir) or _is_shared_by_all(workdir):
        return None
    return workdir, False


def _is_shared_by_all(path: str) -> bool:
    home = os.path.realpath(os.path.expanduser("~"))
    return (
        os.fsencode(path) in result_walk.COMMON
        or (home + "/").startswith(path.rstrip("/") + "/")
        or os.path.dirname(path) == "/home"
        or os.path.ismount(path)
    )


def claim_work_folders(owners: result_walk.FolderOwners, jobs: list[queue_file.Job]) -> None:
    """Make each job the owner of its working directory; the deepest claim of any kind wins.

    Pushed code used by a single cell belongs to that cell, so its durable copy has these files too.
    """
    claims: dict[str, list[tuple[queue_file.Job, bool]]] = {}
    for job in jobs:
        found = find_job_folder(job.workdir)
        if found is not None:
            claims.setdefault(found[0], []).append((job, found[1]))
    for folder, workers in claims.items():
        job, is_pushed = workers[0]
        # Cells that are no longer in the queue may also have written there.
        cells = {line.name for line in job.read_lines()[0]}
        cells.update(str(cell["name"]) for cell in queue_state.load_state(job)["cells"])
        owner = f"job {job.folder}"
        if is_pushed and len(workers) == 1 and len(cells) == 1:
            owner = f"cell {cells.pop()}"
        owners.claim_path(folder, owner, shared=True)
