"""Every danger that is known of a platform has its clock: the table says which clock stands for which danger."""

from __future__ import annotations

import pytest

from rgt_tui.profiles import all_profiles

CLOCKS: dict[str, dict[str, str]] = {
    "autodl": {
        "stopped instance is auto-released": "auto-release of the stopped box",
        "low balance or arrears": "arrears",
        "data-disk storage rate while stopped": "data disk bills while stopped",
        "forgotten running instance": "forgotten box",
        "long-running nohup process": "long nohup job",
    },
    "runpod": {
        "stopped Pod bills its volume disk at double rate": "volume disk at double rate",
        "GPU rented away while stopped": "GPU rented to someone else",
        "account balance too low to cover runtime": "low balance",
        "long-stopped Pod removed": "removal of a long-stopped Pod",
        "Spot reclaim": "spot reclaim",
        "container disk fills": "container disk fills",
        "prepaid savings plan": "prepaid savings plan",
    },
    "vastai": {
        "stopped instance bills its disk": "disk bills while stopped",
        "bandwidth metering": "bandwidth is metered",
        "Volume outlives the instance": "Volume outlives the instance",
        "balance reaches zero": "zero balance",
        "host-set rental end date": "end date set by the host",
        "outbid or displaced by on-demand": "outbid",
        "stuck Scheduling": "stuck in Scheduling",
        "host disappears": "host disappears",
        "unbounded status poll": "script that polls without a limit",
    },
    "generic-ssh": {
        "forgotten box": "forgotten box",
        "SSH drop without detach": "SSH drops",
        "host reboot": "host reboots",
    },
    "lambda": {
        "in-OS shutdown": "shutdown from inside",
        "filesystem outlives the instance": "file system outlives the instance",
        "no stop state": "no stop state",
        "hung terminate call": "terminate call hangs",
        "reservation invoice unpaid": "reservation not paid",
        "1-Click Cluster commitment": "1-Click Cluster",
        "capacity gone after terminate": "capacity gone after Terminate",
    },
    "paperspace-core": {
        "auto-shutdown timer": "automatic shutdown",
        "storage, static IP, snapshots bill while powered off": "disk, address and snapshots bill while it is off",
        "orphaned snapshot": "snapshots after the machine is gone",
        "block storage expansion": "disk enlarged",
    },
    "paperspace-gradient": {
        "free notebook hard stop": "timer of a free notebook",
        "paid notebook auto-shutdown": "timer of a paid notebook",
        "storage overage": "storage above the allowance",
        "notebook deletion": "the notebook is deleted",
        "public by default": "public unless told otherwise",
    },
    "matpool": {
        "release wipes the instance disk": "the release empties the machine",
        "snapshot files fill the netdisk": "snapshots fill the netdisk",
        "opt-in idle auto-stop": "automatic stop of an idle GPU",
        "auto-release of a stopped instance": "release of a stopped machine by itself",
    },
    "gpushare": {
        "stopped instance auto-released": "release of the stopped instance",
        "/hy-tmp auto-clear": "/hy-tmp is emptied",
        "system disk reset": "the stop resets the system disk",
        "arrears purge": "arrears",
        "per-GB network storage": "network storage is billed by the GB",
        "opt-in idle auto-stop": "automatic stop of an idle GPU",
    },
    "featurize": {
        "return wipes the machine": "the return wipes the machine",
        "sync-drive lag": "the cloud drive lags behind",
        "quota exhausted": "the quota is used up",
        "opt-in idle auto-stop": "automatic stop of an idle GPU",
    },
    "lanrui": {
        "data disk bills while the workspace is stopped": "the data disk bills while stopped",
        "netdisk overage": "netdisk above the free quota",
        "system disk lost on stop": "the stop empties the system disk",
        "shared netdisk clobber": "workspaces overwrite each other on the netdisk",
        "platform churn": "the platform changes",
        "opt-in idle auto-stop or auto-stop timer": "automatic stop",
    },
    "slurm": {
        "walltime limit": "walltime",
        "preemption": "preemption",
        "node-local scratch wipe": "$TMPDIR is emptied",
        "memory limit": "memory limit",
        "fairshare or allocation exhausted": "fairshare or allocation used up",
    },
    "kubernetes": {
        "node keeps billing after the Job is deleted": "the node costs on",
        "pod filesystem is ephemeral": "the pod's files go with it",
        "ephemeral-storage eviction": "eviction for ephemeral storage",
        "activeDeadlineSeconds": "activeDeadlineSeconds",
        "ttlSecondsAfterFinished": "ttlSecondsAfterFinished",
        "backoffLimit reached": "backoffLimit",
    },
    "colab": {
        "idle timeout": "idle session",
        "VM lifetime": "end of the machine's life",
        "closed tab": "closed tab",
        "Drive sync lag": "Drive lags behind",
    },
    "kaggle": {
        "interactive idle timeout": "idle session",
        "session or commit cap": "limit of a session or commit",
        "weekly GPU quota": "weekly GPU quota",
        "failing cell in a commit": "failing cell of a commit",
    },
    "local": {
        "host reboot, OS update or shutdown": "reboot, update or shutdown",
        "disk failure": "disk failure",
        "desktop competes for memory": "the desktop takes the memory",
    },
    "digitalocean": {
        "powered off bills in full": "off, and billed in full",
        "snapshots, volumes and reserved addresses outlive it": "what outlives the Droplet",
        "only a destroy stops the meter": "forgotten Droplet",
        "scratch disk is not persistent": "scratch disk is not kept",
        "traffic above the allowance": "traffic above the allowance",
    },
}
"""Platform → known danger → ``what`` of its clock."""


@pytest.mark.parametrize("platform", sorted(all_profiles()))
def test_every_known_danger_has_its_own_clock(platform: str) -> None:
    clocks = [clock.what for clock in all_profiles()[platform].clocks]
    named = list(CLOCKS[platform].values())
    assert len(set(named)) == len(named), "one clock cannot stand for two dangers"
    assert not [what for what in named if what not in clocks]
    assert len(set(clocks)) == len(clocks)


def test_no_platform_of_the_table_is_missing() -> None:
    assert set(CLOCKS) == set(all_profiles())


def test_there_are_as_many_as_are_known() -> None:
    assert sum(map(len, CLOCKS.values())) == 82 + len(CLOCKS["digitalocean"])
