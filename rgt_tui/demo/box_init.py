"""Scripts that keep the demo's namespaces open: a box's first process, and the disks' holder.

The first process of a box builds its file tree, enters it, reaps orphans, and ends with its keeper.
It runs as pid 1 of new pid, mount and host-name namespaces. Its environment has ``RGT_DEMO_BOX``,
JSON::

    {"root": dir, "ephemeral": {"size", "inodes"} | null, "binds": [[source, target, read_only]],
     "links": [[target, text]], "dirs": [dir], "programs": dir, "hostname": str, "cgroups": [dir]}

It prints ``ready``, then runs until its standard input ends. The kernel kills every process of a
pid namespace together with its first one, so no process of a box outlives the demo, even after
``kill -9`` of the demo.

With an argument it holds the mount namespace with the boxes' disks, so that a disk survives the
reboot of its box: ``python box_init.py CONFIG`` inside ``unshare --mount``, where CONFIG is JSON,
``{"disks": [{"path", "size", "inodes"}]}``. It mounts a tmpfs for each, prints ``ready``, and runs
until its standard input ends; the mounts disappear with it.

Standard library only; needs no installed package.
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import sys

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 1, 32, 4096, 16384
LIBC = ctypes.CDLL(None, use_errno=True)


def mount_filesystem(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system; raise OSError with the target's name."""
    done = LIBC.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    if done != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def bind_mount(source: str, target: str, read_only: bool) -> None:
    """Bind-mount `source` at `target`, including the mounts below it."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    mount_filesystem(source, target, "", MS_BIND | MS_REC)
    if read_only:
        try:
            mount_filesystem(source, target, "", MS_BIND | MS_REMOUNT | MS_RDONLY)
        except OSError:
            # In a user namespace the kernel may keep other flags locked; the tenant owns these
            # files anyway.
            pass


def mount_disk(path: str, disk: dict) -> None:  # type: ignore[type-arg]
    """Mount a tmpfs with ``size`` bytes and ``inodes``.

    The agent recognises it as a disk by its source.
    """
    mount_filesystem(
        "rgt-demo-disk",
        path,
        "tmpfs",
        0,
        f"size={disk['size']},nr_inodes={disk['inodes']},mode=755",
    )


def add_programs(folder: str, target: str) -> None:
    """Show the programs of a directory in another one, which cannot be changed.

    A kernel may refuse it, for example in a user namespace; then the box has no such programs.
    """
    try:
        mount_filesystem("overlay", target, "overlay", MS_RDONLY, f"lowerdir={folder}:{target}")
    except OSError:
        pass


def build_root(config: dict) -> None:  # type: ignore[type-arg]
    """Create the file tree of the box below ``config["root"]`` and make that the root directory."""
    root = config["root"]
    if config["ephemeral"]:
        mount_disk(root, config["ephemeral"])
    for directory in config["dirs"]:
        os.makedirs(root + directory, exist_ok=True)
    os.chmod(root + "/tmp", 0o1777)
    for target, text in config["links"]:
        if not os.path.lexists(root + target):
            os.symlink(text, root + target)
    for source, target, read_only in config["binds"]:
        bind_mount(source, root + target, read_only)
    if config["programs"]:
        add_programs(config["programs"], root + "/usr/bin")
    if os.path.isdir(root + "/dev/shm"):
        # The machine's shared memory is visible with /dev: its files would be taken for results of
        # the box.
        mount_filesystem("tmpfs", root + "/dev/shm", "tmpfs", 0, "size=1g,mode=1777")
    mount_filesystem("proc", root + "/proc", "proc", 0)
    os.chroot(root)
    os.chdir("/")


def reap_children() -> None:
    """Reap children until standard input ends."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waiting = selectors.DefaultSelector()
    waiting.register(0, selectors.EVENT_READ)
    waiting.register(reader, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if not os.read(key.fd, 4096) and key.fd == 0:
                return
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


def serve_disks(config: dict) -> None:  # type: ignore[type-arg]
    """Mount the disks, report it, and wait for the end of standard input."""
    for disk in config["disks"]:
        os.makedirs(disk["path"], exist_ok=True)
        mount_disk(disk["path"], disk)
    print_ready()
    while os.read(0, 4096):
        pass


def print_ready() -> None:
    """Notify the keeper."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def serve_box() -> None:
    """Enter the cgroups, build the tree, report it, and reap children."""
    config = json.loads(os.environ.pop("RGT_DEMO_BOX"))
    for cgroup in config["cgroups"]:
        with open(os.path.join(cgroup, "cgroup.procs"), "w") as procs:
            procs.write("0")
    socket.sethostname(config["hostname"])
    build_root(config)
    print_ready()
    reap_children()


if __name__ == "__main__":
    serve_disks(json.loads(sys.argv[1])) if sys.argv[1:] else serve_box()
