"""One module per command; each imports its dependencies only when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.cli.arguments import duration, gpu_wish
    from rgt_tui.cli.commands import (
        COMMANDS,
        FAILED,
        INTERRUPTED,
        OK,
        UNCONFIRMED,
        UNREACHABLE,
        USAGE,
    )
    from rgt_tui.cli.curves import chosen_run, chosen_series, for_output, plot
    from rgt_tui.cli.dashboard import Met, ask_tmux
    from rgt_tui.cli.demo import HINT
    from rgt_tui.cli.entry import main, parse
    from rgt_tui.cli.gathering import (
        FIRST_LOOK_SECONDS,
        LONGEST_SECONDS,
        QUIET_SECONDS,
        Settling,
        gather,
    )
    from rgt_tui.cli.logs import TerminalOutput, is_path, known, of_run, one_row, unknown, width
    from rgt_tui.cli.metrics import FAMILIES, exposition, series
    from rgt_tui.cli.printing import columns, complain, json_line, waiting
    from rgt_tui.cli.serving import command_of
    from rgt_tui.cli.status import account_line, account_text, exit_code, patrol_code
    from rgt_tui.cli.status_line import StatusLine, Verdict, encode, text_line, verdict

__all__ = [
    "COMMANDS",
    "FAILED",
    "FAMILIES",
    "FIRST_LOOK_SECONDS",
    "HINT",
    "INTERRUPTED",
    "LONGEST_SECONDS",
    "OK",
    "QUIET_SECONDS",
    "UNCONFIRMED",
    "UNREACHABLE",
    "USAGE",
    "Met",
    "Settling",
    "StatusLine",
    "TerminalOutput",
    "Verdict",
    "account_line",
    "account_text",
    "arguments",
    "ask_tmux",
    "chosen_run",
    "chosen_series",
    "columns",
    "command_of",
    "commands",
    "complain",
    "dashboard",
    "duration",
    "encode",
    "entry",
    "exit_code",
    "exposition",
    "for_output",
    "gather",
    "gathering",
    "gpu_wish",
    "is_path",
    "json_line",
    "known",
    "main",
    "of_run",
    "one_row",
    "opening",
    "parse",
    "patrol_code",
    "plot",
    "printing",
    "running",
    "series",
    "status_line",
    "text_line",
    "unknown",
    "verdict",
    "waiting",
    "width",
]

__getattr__ = imported_later(
    __name__,
    {
        "arguments": "duration gpu_wish",
        "commands": "COMMANDS FAILED INTERRUPTED OK UNCONFIRMED UNREACHABLE USAGE",
        "curves": "chosen_run chosen_series for_output plot",
        "dashboard": "Met ask_tmux",
        "demo": "HINT",
        "entry": "main parse",
        "gathering": "FIRST_LOOK_SECONDS LONGEST_SECONDS QUIET_SECONDS Settling gather",
        "logs": "TerminalOutput is_path known of_run one_row unknown width",
        "metrics": "FAMILIES exposition series",
        "printing": "columns complain json_line waiting",
        "serving": "command_of",
        "status": "account_line account_text exit_code patrol_code",
        "status_line": "StatusLine Verdict encode text_line verdict",
    },
)
