"""SSH: from a host in the fleet file to a stream of frames from the box.

Modules that need asyncssh are imported on first use, so that the dashboard's first frame does not
wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

from rgt_tui.ssh import native_libraries
from rgt_tui.ssh.box_transport import (
    AuthFailed,
    BoxChannel,
    BoxError,
    BoxTransport,
    CommandFailed,
    CommandNotRun,
    ConfigError,
    DeployFailed,
    HostKeyRefused,
    NoCommands,
    NoPython,
    PasswordExpired,
    ProbeFailed,
    RestrictedShell,
    Unreachable,
    transport_name,
)
from rgt_tui.ssh.ssh_config import (
    NO_AGENT,
    NO_FILE,
    NO_SSH,
    expand_path,
    replace_tokens,
    scan_config,
    surroundings,
)
from rgt_tui.ssh.ssh_route import HostRequest, SshHost, check_host, check_user, resolve_host

if TYPE_CHECKING:
    from rgt_tui.ssh.bundle import (
        AgentBundle,
        build_agent,
        build_trainer,
        remote_root,
        trainer_root,
    )
    from rgt_tui.ssh.channel import (
        NO_FILES,
        BoxStream,
        WatchChannel,
        open_channel,
        read_frame,
        start_watch,
    )
    from rgt_tui.ssh.command_streams import (
        BulkChannel,
        StreamedResult,
        feed_command,
        open_bulk,
        pass_through,
    )
    from rgt_tui.ssh.connection import (
        MovedAddress,
        config_blocks,
        connect,
        connect_box,
        connection_label,
        peer_address,
        resolve_hops,
        watched_moved_address,
    )
    from rgt_tui.ssh.deployment import (
        DeployedAgent,
        DeployedTrainer,
        candidates,
        deploy_agent,
        deploy_trainer,
        find_python_with,
        find_torch,
    )
    from rgt_tui.ssh.known_hosts import HostKeyPolicy
    from rgt_tui.ssh.kubectl_exec import find_kubectl
    from rgt_tui.ssh.login_shell import (
        ASK_LOGIN_SHELL,
        GUARD,
        LOGIN_TRACE_COMMAND,
        TRACE_COMMAND,
        StartUpCost,
        StartUpTrace,
        find_ending_line,
        quote_words,
        read_trace,
        reads_commands_from_stdin,
        start_up_cost,
        start_up_words,
    )
    from rgt_tui.ssh.openssh_client import (
        BulkClient,
        NotCarried,
        bulk_client,
        refuses_host,
        terminal_words,
    )
    from rgt_tui.ssh.person import LoginAnswers, PausableDeadline, Person, answered_by
    from rgt_tui.ssh.pod_lookup import describe_kubectl_error, run_kubectl
    from rgt_tui.ssh.remote_cat import (
        CatFailed,
        FileBegins,
        FileListed,
        FileProgress,
        list_matching_files,
        stream_cat,
    )
    from rgt_tui.ssh.remote_command import (
        NO_SFTP,
        LineSplitter,
        RemoteCommandResult,
        connection_lost_error,
        decode_answer,
        extract_record,
        find_replacing_line,
        has_sftp,
        run_command,
    )
    from rgt_tui.ssh.sh_probe import ShellProbe

__all__ = [
    "ASK_LOGIN_SHELL",
    "GUARD",
    "LOGIN_TRACE_COMMAND",
    "NO_AGENT",
    "NO_FILE",
    "NO_FILES",
    "NO_SFTP",
    "NO_SSH",
    "TRACE_COMMAND",
    "AgentBundle",
    "AuthFailed",
    "BoxChannel",
    "BoxError",
    "BoxStream",
    "BoxTransport",
    "BulkChannel",
    "BulkClient",
    "CatFailed",
    "CommandFailed",
    "CommandNotRun",
    "ConfigError",
    "DeployFailed",
    "DeployedAgent",
    "DeployedTrainer",
    "FileBegins",
    "FileListed",
    "FileProgress",
    "HostKeyPolicy",
    "HostKeyRefused",
    "HostRequest",
    "LineSplitter",
    "LoginAnswers",
    "MovedAddress",
    "NoCommands",
    "NoPython",
    "NotCarried",
    "PasswordExpired",
    "PausableDeadline",
    "Person",
    "ProbeFailed",
    "RemoteCommandResult",
    "RestrictedShell",
    "ShellProbe",
    "SshHost",
    "StartUpCost",
    "StartUpTrace",
    "StreamedResult",
    "Unreachable",
    "WatchChannel",
    "answered_by",
    "build_agent",
    "build_trainer",
    "bulk_client",
    "candidates",
    "check_host",
    "check_user",
    "config_blocks",
    "connect",
    "connect_box",
    "connection_label",
    "connection_lost_error",
    "decode_answer",
    "deploy_agent",
    "deploy_trainer",
    "describe_kubectl_error",
    "expand_path",
    "extract_record",
    "feed_command",
    "find_ending_line",
    "find_kubectl",
    "find_python_with",
    "find_replacing_line",
    "find_torch",
    "has_sftp",
    "list_matching_files",
    "open_bulk",
    "open_channel",
    "pass_through",
    "peer_address",
    "quote_words",
    "read_frame",
    "read_trace",
    "reads_commands_from_stdin",
    "refuses_host",
    "remote_root",
    "replace_tokens",
    "resolve_hops",
    "resolve_host",
    "run_command",
    "run_kubectl",
    "scan_config",
    "start_up_cost",
    "start_up_words",
    "start_watch",
    "stream_cat",
    "surroundings",
    "terminal_words",
    "trainer_root",
    "transport_name",
    "watched_moved_address",
]

native_libraries.install_hook()

__getattr__ = imported_later(
    __name__,
    {
        "channel": "NO_FILES WatchChannel BoxStream open_channel read_frame start_watch",
        "command_streams": "BulkChannel StreamedResult feed_command open_bulk pass_through",
        "connection": "MovedAddress peer_address config_blocks connect connect_box resolve_hops "
        "watched_moved_address connection_label",
        "bundle": "AgentBundle build_agent build_trainer remote_root trainer_root",
        "deployment": "DeployedAgent DeployedTrainer candidates deploy_agent deploy_trainer "
        "find_python_with find_torch",
        "known_hosts": "HostKeyPolicy",
        "kubectl_exec": "find_kubectl",
        "login_shell": "ASK_LOGIN_SHELL GUARD LOGIN_TRACE_COMMAND TRACE_COMMAND StartUpCost "
        "StartUpTrace find_ending_line quote_words read_trace "
        "reads_commands_from_stdin start_up_cost start_up_words",
        "openssh_client": "BulkClient NotCarried bulk_client refuses_host terminal_words",
        "person": "LoginAnswers PausableDeadline Person answered_by",
        "pod_lookup": "describe_kubectl_error run_kubectl",
        "remote_cat": "CatFailed FileBegins FileListed FileProgress stream_cat list_matching_files",
        "remote_command": "NO_SFTP RemoteCommandResult LineSplitter decode_answer has_sftp "
        "connection_lost_error extract_record find_replacing_line run_command",
        "sh_probe": "ShellProbe",
    },
)
