"""SSH: from a host in the fleet file to a stream of frames from the box.

Modules that need asyncssh are imported on first use, so that the dashboard's first frame does not
wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

from rgt_tui.ssh import native_libraries
from rgt_tui.ssh.ssh_config import NO_FILE, NO_SSH, expand, percent, scan, surroundings
from rgt_tui.ssh.ssh_errors import (
    AuthFailed,
    BoxError,
    CommandFailed,
    ConfigError,
    DeployFailed,
    HostKeyRefused,
    NoCommands,
    NoPython,
    ProbeFailed,
    Unreachable,
)
from rgt_tui.ssh.ssh_route import Host, Wanted, check_host, check_user, resolve

if TYPE_CHECKING:
    from rgt_tui.ssh.bundle import (
        AgentBundle,
        build_agent,
        build_trainer,
        remote_root,
        trainer_root,
    )
    from rgt_tui.ssh.channel import NO_FILES, Channel, Watching, open_channel, read_frame, watch
    from rgt_tui.ssh.command_streams import BulkChannel, Passed, feed, open_bulk, pass_through
    from rgt_tui.ssh.connection import (
        Elsewhere,
        by_hand,
        config_blocks,
        connect,
        hops,
        watched_elsewhere,
        where,
    )
    from rgt_tui.ssh.deployment import Deployed, Pushed, deploy, find_torch, push
    from rgt_tui.ssh.known_hosts import Policy
    from rgt_tui.ssh.openssh_client import (
        BulkClient,
        NotCarried,
        bulk_client,
        pinned_host_key,
        refuses_host,
    )
    from rgt_tui.ssh.person import Answers, Deadline, Person, answered_by
    from rgt_tui.ssh.remote_cat import CatFailed, FileBegins, FileListed, Place, cat, listed
    from rgt_tui.ssh.remote_command import (
        NO_SFTP,
        Done,
        LineSplitter,
        decoded,
        has_sftp,
        lost,
        record,
        run,
    )
    from rgt_tui.ssh.sh_probe import Probe

__all__ = [
    "NO_FILE",
    "NO_FILES",
    "NO_SFTP",
    "NO_SSH",
    "AgentBundle",
    "Answers",
    "AuthFailed",
    "BoxError",
    "BulkChannel",
    "BulkClient",
    "CatFailed",
    "Channel",
    "CommandFailed",
    "ConfigError",
    "Deadline",
    "DeployFailed",
    "Deployed",
    "Done",
    "Elsewhere",
    "FileBegins",
    "FileListed",
    "Host",
    "HostKeyRefused",
    "LineSplitter",
    "NoCommands",
    "NoPython",
    "NotCarried",
    "Passed",
    "Person",
    "Place",
    "Policy",
    "Probe",
    "ProbeFailed",
    "Pushed",
    "Unreachable",
    "Wanted",
    "Watching",
    "answered_by",
    "build_agent",
    "build_trainer",
    "bulk_client",
    "by_hand",
    "cat",
    "check_host",
    "check_user",
    "config_blocks",
    "connect",
    "decoded",
    "deploy",
    "expand",
    "feed",
    "find_torch",
    "has_sftp",
    "hops",
    "listed",
    "lost",
    "open_bulk",
    "open_channel",
    "pass_through",
    "percent",
    "pinned_host_key",
    "push",
    "read_frame",
    "record",
    "refuses_host",
    "remote_root",
    "resolve",
    "run",
    "scan",
    "surroundings",
    "trainer_root",
    "watch",
    "watched_elsewhere",
    "where",
]

native_libraries.begin()

__getattr__ = imported_later(
    __name__,
    {
        "channel": "NO_FILES Channel Watching open_channel read_frame watch",
        "command_streams": "BulkChannel Passed feed open_bulk pass_through",
        "connection": "Elsewhere by_hand config_blocks connect hops watched_elsewhere where",
        "bundle": "AgentBundle build_agent build_trainer remote_root trainer_root",
        "deployment": "Deployed Pushed deploy find_torch push",
        "known_hosts": "Policy",
        "openssh_client": "BulkClient NotCarried bulk_client pinned_host_key refuses_host",
        "person": "Answers Deadline Person answered_by",
        "remote_cat": "CatFailed FileBegins FileListed Place cat listed",
        "remote_command": "NO_SFTP Done LineSplitter decoded has_sftp lost record run",
        "sh_probe": "Probe",
    },
)
