"""Puts clusters into a SkyPilot server's database, by its own code; runs with the server's Python and home.

Those on AWS have machines, at the moto server that stands for AWS. Lambda and RunPod have no key here, so that the
server cannot ask them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

CATALOGS = {
    "aws": "".join(
        f'g5.xlarge,A10G,1,4,16,"{{}}",1.006,0.4,us-east-1,use1-az{zone},x86_64\n'
        for zone in range(1, 7)
    ),
    "lambda": 'gpu_1x_a10,A10,1,30,200,"{}",0.75,,us-east-1,,\n',
    "runpod": '1x_RTX4090_SECURE,RTX4090,1,16,24,"{}",0.69,,US,,\n',
}
COLUMNS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
    "AvailabilityZone,Arch\n"
)
YAML = """cluster_name: {on_cloud}
provider: {{type: external, module: sky.provision.{module}, region: {region}, availability_zone: us-east-1a,
  use_internal_ips: false, security_group: {{GroupName: default, ManagedBySkyPilot: false}}}}
auth: {{ssh_user: ubuntu, ssh_private_key: ~/.ssh/sky-key}}
"""


def write_catalogs() -> None:
    """Write the price lists that the server would download."""
    folder = Path.home() / ".sky/catalogs/v8"
    for cloud, rows in CATALOGS.items():
        (folder / cloud).mkdir(parents=True)
        (folder / cloud / "vms.csv").write_text(COLUMNS + rows)
    (folder / "aws/images.csv").write_text("Tag,Region,OS,OSVersion,ImageId,CreationDate\n")
    (folder / "aws/instance_quota_mapping.csv").write_text(
        "InstanceType,OnDemandInstanceCode,SpotInstanceCode\n"
    )


def rent(on_cloud: str, *, running: bool) -> None:
    """Rent a machine with the tags by which SkyPilot finds it."""
    import boto3

    ec2 = boto3.client("ec2")
    tags = {
        "ray-cluster-name": on_cloud,
        "skypilot-cluster-name": on_cloud,
        "ray-node-type": "head",
    }
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    made = ec2.run_instances(
        ImageId=ec2.describe_images()["Images"][0]["ImageId"], MinCount=1, MaxCount=1, InstanceType="g5.xlarge",
        TagSpecifications=[{"ResourceType": "instance", "Tags": pairs}],
    )  # fmt: skip
    if not running:
        ec2.stop_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])


def add(name: str, cloud: str, status: str) -> None:
    """Add a cluster of one node."""
    from sky import clouds, global_user_state, resources
    from sky.backends.cloud_vm_ray_backend import CloudVmRayResourceHandle
    from sky.utils.status_lib import ClusterStatus

    on_cloud = f"{name}-0a1b2c3d"
    kinds = {
        "aws": (clouds.AWS(), "g5.xlarge", "us-east-1", {"A10G": 1}, "aws"),
        "lambda": (clouds.Lambda(), "gpu_1x_a10", "us-east-1", {"A10": 1}, "lambda_cloud"),
        "runpod": (clouds.RunPod(), "1x_RTX4090_SECURE", "US", {"RTX4090": 1}, "runpod"),
    }
    kind, machine, region, gpus, module = kinds[cloud]
    launched = resources.Resources(
        cloud=kind, instance_type=machine, region=region, accelerators=gpus
    )
    handle = CloudVmRayResourceHandle(
        cluster_name=name, cluster_name_on_cloud=on_cloud, cluster_yaml=f"~/.sky/generated/{name}.yml",
        launched_nodes=1, launched_resources=launched, stable_internal_external_ips=[("10.0.0.1", "127.0.0.1")],
    )  # fmt: skip
    # Nothing runs on these machines, so that the server must not look for its own programs there.
    handle.provision_runtime_metadata = dataclasses.replace(
        handle.provision_runtime_metadata, has_ray=False
    )
    global_user_state.add_or_update_cluster(
        name, handle, requested_resources={launched}, ready=True
    )
    global_user_state.set_cluster_yaml(
        name, YAML.format(on_cloud=on_cloud, module=module, region=region)
    )
    if status != "UP":
        global_user_state.set_cluster_status(name, ClusterStatus(status))
    if cloud == "aws":
        rent(on_cloud, running=status == "UP")


if __name__ == "__main__":
    write_catalogs()
    for name, cloud, status in (
        ("begun", "lambda", "INIT"),
        ("on-lambda", "lambda", "UP"),
        ("on-runpod", "runpod", "UP"),
        ("rests-somewhere", "lambda", "STOPPED"),
        ("on-aws", "aws", "UP"),
        ("to-end", "aws", "UP"),
        ("rests", "aws", "STOPPED"),
    ):
        add(name, cloud, status)
