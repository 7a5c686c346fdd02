"""Which of several pods is the box, and what is read of their Job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.model import JobObject, KubernetesPod, choose_box_pod, read_index_ranges


def pod(name: str, index: int | None = None, job: str = "lm", **status: Any) -> KubernetesPod:
    """Return a pod that runs; with an index, one of an indexed Job."""
    metadata: dict[str, Any] = {"name": name, **status.pop("metadata", {})}
    if index is not None:
        metadata["annotations"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        metadata["ownerReferences"] = [{"kind": "Job", "name": job, "controller": True}]
    made = {"metadata": metadata, "status": {"phase": "Running", **status}}
    return msgspec.convert(made, KubernetesPod)


DELETED = {"deletionTimestamp": "2026-11-30T01:00:00Z"}


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([pod("a")], "a"),
        ([pod("a"), pod("lm-0-x", 0)], "a"),  # the work of the box is not the box
        ([pod("a", phase="Pending"), pod("lm-1-x", 1)], "lm-1-x"),
        ([pod("lm-10-x", 10), pod("lm-9-x", 9)], "lm-9-x"),
        ([pod("lm-0-x", 0, metadata=DELETED), pod("lm-2-x", 2)], "lm-2-x"),
        ([pod("lm-0-x", 0, phase="Succeeded"), pod("lm-2-x", 2)], "lm-2-x"),
        ([pod("a"), pod("b")], None),
        ([pod("a"), pod("b"), pod("lm-0-x", 0)], None),
        ([pod("lm-0-x", 0), pod("other-1-x", 1, job="other")], None),
        ([pod("a", phase="Pending")], None),
        ([], None),
    ],
)
def test_the_box_is_its_own_pod_or_else_the_lowest_index_that_runs(
    pods: list[KubernetesPod], chosen: str | None
) -> None:
    for order in (pods, pods[::-1]):
        found = choose_box_pod(order)
        assert (found and found.metadata.name) == chosen


def test_the_indexes_of_a_job_as_the_api_writes_them() -> None:
    assert read_index_ranges("0,2-4,9") == {0, 2, 3, 4, 9}
    assert read_index_ranges("") == read_index_ranges("x,1-,-3") == set()


def test_the_cells_of_a_job_are_those_of_its_annotation() -> None:
    def job_with(text: str) -> JobObject:
        made = {"metadata": {"name": "lm", "annotations": {"rgt/cells": text}}}
        return msgspec.convert(made, JobObject)

    assert job_with('{"b": "b.yaml run", "a": "a.yaml run"}').metadata.cell_lines == {
        "b": "b.yaml run", "a": "a.yaml run",
    }  # fmt: skip
    assert job_with("[1").metadata.cell_lines == job_with('{"a": 1}').metadata.cell_lines == {}
