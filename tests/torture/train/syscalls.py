"""The file system's system calls of a process and all it starts, handed to a supervisor one by one.

A seccomp filter with user notification: it counts what the kernel is really asked for, by whatever library and thread,
and it outlives fork and exec, so that the writer process of a trainer is watched like the trainer. Linux alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct

BOTH = {
    "fallocate": (285, 47), "openat": (257, 56), "close": (3, 57), "getdents64": (217, 61), "write": (1, 64),
    "writev": (20, 66), "pwrite64": (18, 68), "pwritev": (296, 70), "newfstatat": (262, 79), "fsync": (74, 82),
    "fdatasync": (75, 83), "mkdirat": (258, 34), "unlinkat": (263, 35), "linkat": (265, 37), "renameat": (264, 38),
    "renameat2": (316, 276), "statfs": (137, 43), "fstatfs": (138, 44), "truncate": (76, 45), "ftruncate": (77, 46),
    "statx": (332, 291), "syncfs": (306, 267), "copy_file_range": (326, 285), "flock": (73, 32), "symlinkat": (266, 36),
    "pread64": (17, 67), "preadv": (295, 69), "preadv2": (327, 286),
}  # fmt: skip
"""Name → its number on x86-64 and on arm64."""
OLD = {
    "open": 2, "stat": 4, "lstat": 6, "access": 21, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86,
    "unlink": 87, "symlink": 88,
}  # fmt: skip
"""Those that x86-64 alone still has."""
CHANGING = frozenset(
    ("openat", "open", "creat", "write", "writev", "pwrite64", "pwritev", "fsync", "fdatasync", "mkdirat", "mkdir",
     "unlinkat", "unlink", "rmdir", "linkat", "link", "renameat", "renameat2", "rename", "truncate", "ftruncate",
     "fallocate", "syncfs", "copy_file_range", "symlinkat", "symlink")
)  # fmt: skip
"""What a full or broken disk may refuse."""
ASKING = frozenset(
    ("newfstatat", "stat", "lstat", "statx", "getdents64", "pread64", "preadv", "preadv2")
)
"""What only looks. A plain ``read`` is not watched: every pipe and socket would be, too."""
_ARM = platform.machine() == "aarch64"
NUMBERS = {name: pair[_ARM] for name, pair in BOTH.items()} | ({} if _ARM else OLD)
NAMES = {number: name for name, number in NUMBERS.items()}

_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_SECCOMP = 277 if _ARM else 317
_SET_MODE_FILTER, _NEW_LISTENER, _NO_NEW_PRIVS = 1, 8, 38


def supported() -> bool:
    """Say whether this kernel can do it."""
    try:
        with open("/proc/sys/kernel/seccomp/actions_avail", encoding="ascii") as file:
            return "user_notif" in file.read().split()
    except OSError:
        return False


def hand_over(path: str) -> None:
    """From now on let whoever listens at the Unix socket `path` decide on each call of this process.

    Raises:
        OSError: The kernel refuses, or nobody listens.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        libc = ctypes.CDLL(None, use_errno=True)
        program = _program()
        buffer = ctypes.create_string_buffer(program)
        head = ctypes.create_string_buffer(
            struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
        )
        if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
        listener = libc.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, head)
        if listener < 0:
            raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)")
        socket.send_fds(sock, [b"."], [listener])
        os.close(listener)


def _program() -> bytes:
    numbers = sorted(NAMES)
    load = struct.pack("HBBI", 0x20, 0, 0, 0)  # the call's number
    jumps = [
        struct.pack("HBBI", 0x15, len(numbers) - n, 0, number) for n, number in enumerate(numbers)
    ]
    ends = [struct.pack("HBBI", 0x06, 0, 0, action) for action in (_ALLOW, _NOTIFY)]
    return load + b"".join(jumps) + b"".join(ends)
