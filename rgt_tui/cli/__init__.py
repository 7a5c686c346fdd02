"""One module per command; each imports its dependencies only when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

# For type checkers and editors alone: a real import of these would load every command, and each
# start of rgt would pay for it. `imported_later` below does the same by name, when needed.
if TYPE_CHECKING:
    from rgt_tui.cli.arguments import gpu_wish, parse_duration
    from rgt_tui.cli.commands import (
        COMMANDS,
        FAILED,
        INTERRUPTED,
        OK,
        UNCONFIRMED,
        UNREACHABLE,
        USAGE,
    )
    from rgt_tui.cli.curves import chosen_run, chosen_series, draw_plot, for_output
    from rgt_tui.cli.dashboard import SeenPlatformFile, choose_ascii_in_tmux
    from rgt_tui.cli.demo import HINT
    from rgt_tui.cli.entry import main, parse_command_line
    from rgt_tui.cli.gathering import SETTLE_PACES, SettleTracker, gather_state
    from rgt_tui.cli.logs import (
        TerminalOutput,
        count_columns,
        describe_unknown_log,
        is_path,
        list_log_paths,
        of_run,
        one_row,
    )
    from rgt_tui.cli.metrics import FAMILIES, format_exposition, iterate_series
    from rgt_tui.cli.printing import format_row, json_line, print_error, wait_indicator
    from rgt_tui.cli.serving import command_of
    from rgt_tui.cli.status import account_line, account_text, exit_code, patrol_code
    from rgt_tui.cli.status_line import (
        StatusLine,
        StatusVerdict,
        choose_verdict,
        encode_line,
        text_line,
    )

__all__ = [
    "COMMANDS",
    "FAILED",
    "FAMILIES",
    "HINT",
    "INTERRUPTED",
    "OK",
    "SETTLE_PACES",
    "UNCONFIRMED",
    "UNREACHABLE",
    "USAGE",
    "SeenPlatformFile",
    "SettleTracker",
    "StatusLine",
    "StatusVerdict",
    "TerminalOutput",
    "account_line",
    "account_text",
    "arguments",
    "choose_ascii_in_tmux",
    "choose_verdict",
    "chosen_run",
    "chosen_series",
    "command_of",
    "commands",
    "count_columns",
    "curves",
    "dashboard",
    "describe_unknown_log",
    "draw_plot",
    "encode_line",
    "entry",
    "exit_code",
    "for_output",
    "format_exposition",
    "format_row",
    "gather_state",
    "gathering",
    "gpu_wish",
    "is_path",
    "iterate_series",
    "json_line",
    "list_log_paths",
    "main",
    "of_run",
    "one_row",
    "opening",
    "parse_command_line",
    "parse_duration",
    "patrol_code",
    "print_error",
    "printing",
    "running",
    "status_line",
    "text_line",
    "wait_indicator",
]

# No name here may also be a module of this package: importing that module would replace it.
__getattr__ = imported_later(
    __name__,
    {
        "arguments": "parse_duration gpu_wish",
        "commands": "COMMANDS FAILED INTERRUPTED OK UNCONFIRMED UNREACHABLE USAGE",
        "curves": "chosen_run chosen_series for_output draw_plot",
        "dashboard": "SeenPlatformFile choose_ascii_in_tmux",
        "demo": "HINT",
        "entry": "main parse_command_line",
        "gathering": "SETTLE_PACES SettleTracker gather_state",
        "logs": (
            "TerminalOutput is_path list_log_paths of_run one_row describe_unknown_log "
            "count_columns"
        ),
        "metrics": "FAMILIES format_exposition iterate_series",
        "printing": "format_row print_error json_line wait_indicator",
        "serving": "command_of",
        "status": "account_line account_text exit_code patrol_code",
        "status_line": "StatusLine StatusVerdict encode_line text_line choose_verdict",
    },
)
