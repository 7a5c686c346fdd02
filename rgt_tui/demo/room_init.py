"""Holds the mount namespace in which the boxes' disks live, so that a disk survives the reboot of its box.

Runs as a script: ``python room_init.py CONFIG`` inside ``unshare --mount``, where CONFIG is JSON:
``{"disks": [{"path", "size", "inodes"}]}``. Mounts a tmpfs for each disk, prints ``ready``, and lives until
its standard input ends; the mounts vanish with it. Standard library only; needs no installed package.
"""

import ctypes
import json
import os
import sys


def mount_tmpfs(path: str, size: int, inodes: int) -> None:
    """Mount a tmpfs of `size` bytes and `inodes` inodes at `path`."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs(path, exist_ok=True)
    options = f"size={size},nr_inodes={inodes},mode=755".encode()
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, options) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def main() -> None:
    """Mount the disks, say so, and wait for the end of standard input."""
    config = json.loads(sys.argv[1])
    for disk in config["disks"]:
        mount_tmpfs(disk["path"], disk["size"], disk["inodes"])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while os.read(0, 4096):
        pass


if __name__ == "__main__":
    main()
