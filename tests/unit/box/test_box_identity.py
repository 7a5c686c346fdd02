"""What a box calls itself, by what its platform has left there."""

from __future__ import annotations

import pytest
from rgt_box.place import FIRST, GROUPS, MOUNTS, box_identity

POD, OTHER = "6e0f1234-0000-4000-8000-00000000fa4e", "7e0f1234-0000-4000-8000-00000000fa4e"
KUBELET = "/var/lib/kubelet/pods"


def test_only_names_of_the_list_are_told_and_no_secret() -> None:
    own = {
        "RUNPOD_POD_ID": "abc123",
        "RUNPOD_API_KEY": "rpa_secret",
        "HOME": "/root",
        "CONTAINER_API_KEY": "k",
    }
    first = b"CONTAINER_ID=31415926\0CONTAINER_API_KEY=secret\0FEATURIZE_INSTANCE_ID=5f-1\0FEATURIZE_API_TOKEN=t"
    assert box_identity(own, {FIRST: first}) == {
        "RUNPOD_POD_ID": "abc123",
        "CONTAINER_ID": "31415926",
        "FEATURIZE_INSTANCE_ID": "5f-1",
    }


def test_what_the_platform_started_counts_before_what_a_start_up_file_says() -> None:
    own = {"RUNPOD_POD_ID": "former"}
    assert box_identity(own, {FIRST: b"RUNPOD_POD_ID=now"}) == {"RUNPOD_POD_ID": "now"}
    assert box_identity(own, {FIRST: b"PATH=/bin"}) == {"RUNPOD_POD_ID": "former"}


@pytest.mark.parametrize(
    "value", ["", " ", "a b", "x" * 200, "a\x1b[31m", "a\nb", "-a", "ünï", "$(id)", "a/b"]
)
def test_what_is_no_id_says_nothing(value: str) -> None:
    assert box_identity({"RUNPOD_POD_ID": value}, {FIRST: b"CONTAINER_ID=" + value.encode()}) == {}


def test_a_control_group_of_slurm_counts_before_any_variable() -> None:
    for groups in (
        b"0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n",
        b"4:memory:/slurm/uid_1000/job_77/step_0\n",
    ):
        assert box_identity({"SLURM_JOB_ID": "12"}, {GROUPS: groups}) == {"SLURM_JOB_ID": "77"}
    assert box_identity({"SLURM_JOB_ID": "12"}, {}) == {"SLURM_JOB_ID": "12"}
    assert box_identity({}, {GROUPS: b"0::/user.slice/job_77\n"}) == {}


def test_a_pod_is_told_by_its_control_group_or_by_its_mounts() -> None:
    systemd = POD.replace("-", "_")
    for groups in (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{systemd}.slice/cri-1.scope\n",
        f"3:cpu:/kubepods/burstable/pod{POD}/0123\n",
    ):
        assert box_identity({}, {GROUPS: groups.encode()}) == {"pod_uid": POD}
    mounts = f"1 2 8:1 {KUBELET}/{POD}/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
    mounts += (
        f"1 2 8:1 {KUBELET}/{POD}/containers/a/1 /dev/termination-log rw - ext4 /dev/sda1 rw\n"
    )
    assert box_identity({}, {MOUNTS: mounts.encode(), GROUPS: b"0::/\n"}) == {"pod_uid": POD}


def test_a_node_is_none_of_its_pods() -> None:
    node = f"1 2 0:40 / {KUBELET}/{POD}/volumes/x rw - tmpfs tmpfs rw\n"
    node += f"1 2 8:1 /data {KUBELET}/{POD}/volume-subpaths/y rw - ext4 /dev/sda1 rw\n"
    assert box_identity({}, {MOUNTS: node.encode()}) == {}
    several = f"1 2 8:1 {KUBELET}/{POD}/a /a rw - ext4 d rw\n1 2 8:1 {KUBELET}/{OTHER}/b /b rw - ext4 d rw\n"
    assert box_identity({}, {MOUNTS: several.encode()}) == {}
