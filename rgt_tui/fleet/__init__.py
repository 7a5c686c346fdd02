"""The fleet: one session per box, merged into the states that screens and commands read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.fleet.alerting import EVERY_S, Alerting
    from rgt_tui.fleet.attention import (
        AT_A_TIME,
        FOR_ONE_QUESTION,
        SLOWEST_SECONDS,
        Attention,
        Budget,
        SamplingPaces,
        interval,
        share,
        size,
        weight,
        within,
        words,
    )
    from rgt_tui.fleet.billing_actions import Teardown
    from rgt_tui.fleet.box_evidence import (
        MADE_BEFORE_S,
        Asking,
        Wanted,
        ask_results,
        ask_seal,
        ask_unseal,
        created_at,
    )
    from rgt_tui.fleet.box_logs import ExactLog, Request
    from rgt_tui.fleet.box_session import BoxSession, Intake
    from rgt_tui.fleet.box_settings import durable_dirs
    from rgt_tui.fleet.changes import between
    from rgt_tui.fleet.check_runs import NotRunnable, run_words, words_of
    from rgt_tui.fleet.connector import (
        AT_ONCE,
        WAITS,
        Backoff,
        ConnectLimit,
        Connector,
        Failure,
        FileAccess,
        Jump,
        Keepalive,
        Times,
        clock_jump,
        endpoint_from,
        link_of,
        read_clocks,
        shifted,
    )
    from rgt_tui.fleet.engine import BaseFleet, Fleet
    from rgt_tui.fleet.errands import (
        connected,
        elsewhere,
        provider_word,
        push_trainer,
        reached,
        says,
    )
    from rgt_tui.fleet.event_loop import MOST_TOLD, Faults, collect_less, guarded, new_loop
    from rgt_tui.fleet.fleet_source import (
        Account,
        Beginnings,
        Chronicle,
        FirstSteps,
        FleetSource,
        GateClosed,
        Given,
        NoControlPlane,
        Observer,
        Pulled,
        Tap,
    )
    from rgt_tui.fleet.history.history_keeper import Memory
    from rgt_tui.fleet.history.moment_fleet import RecordedFleet, profile_of
    from rgt_tui.fleet.meters import (
        LEAST_SECONDS,
        LONGEST_SECONDS,
        BookCheck,
        Meters,
        checked,
        is_priced,
        metered,
    )
    from rgt_tui.fleet.open_actions import SETTLE_SECONDS, OpenActions, came
    from rgt_tui.fleet.publisher import Pace, Publisher, Questions
    from rgt_tui.fleet.reducers import (
        LOG_LINES,
        LONGEST,
        LONGEST_LINE,
        MOST_FOUND,
        MOST_RUNS,
        MOST_SERIES,
        RING,
        apply,
        count,
        extended,
        fold,
        rewound,
    )
    from rgt_tui.fleet.transfer_diary import KEPT, Page, TransferNote, noted, read_notes
    from rgt_tui.fleet.unlisted import AccountWatch, ask_accounts, bills

__all__ = [
    "AT_A_TIME",
    "AT_ONCE",
    "EVERY_S",
    "FOR_ONE_QUESTION",
    "KEPT",
    "LEAST_SECONDS",
    "LOG_LINES",
    "LONGEST",
    "LONGEST_LINE",
    "LONGEST_SECONDS",
    "MADE_BEFORE_S",
    "MOST_FOUND",
    "MOST_RUNS",
    "MOST_SERIES",
    "MOST_TOLD",
    "RING",
    "SETTLE_SECONDS",
    "SLOWEST_SECONDS",
    "WAITS",
    "Account",
    "AccountWatch",
    "Alerting",
    "Asking",
    "Attention",
    "Backoff",
    "BaseFleet",
    "Beginnings",
    "BookCheck",
    "BoxSession",
    "Budget",
    "Chronicle",
    "ConnectLimit",
    "Connector",
    "ExactLog",
    "Failure",
    "Faults",
    "FileAccess",
    "FirstSteps",
    "Fleet",
    "FleetSource",
    "GateClosed",
    "Given",
    "Intake",
    "Jump",
    "Keepalive",
    "Memory",
    "Meters",
    "NoControlPlane",
    "NotRunnable",
    "Observer",
    "OpenActions",
    "Pace",
    "Page",
    "Publisher",
    "Pulled",
    "Questions",
    "RecordedFleet",
    "Request",
    "SamplingPaces",
    "Tap",
    "Teardown",
    "Times",
    "TransferNote",
    "Wanted",
    "apply",
    "ask_accounts",
    "ask_results",
    "ask_seal",
    "ask_unseal",
    "between",
    "bills",
    "came",
    "checked",
    "clock_jump",
    "collect_less",
    "connected",
    "count",
    "created_at",
    "durable_dirs",
    "elsewhere",
    "endpoint_from",
    "extended",
    "fold",
    "guarded",
    "interval",
    "is_priced",
    "link_of",
    "metered",
    "new_loop",
    "noted",
    "profile_of",
    "provider_word",
    "push_trainer",
    "reached",
    "read_clocks",
    "read_notes",
    "rewound",
    "run_words",
    "says",
    "share",
    "shifted",
    "size",
    "weight",
    "within",
    "words",
    "words_of",
]

__getattr__ = imported_later(
    __name__,
    {
        "alerting": "Alerting EVERY_S",
        "attention": (
            "AT_A_TIME FOR_ONE_QUESTION SLOWEST_SECONDS Attention Budget SamplingPaces interval share "
            "size weight within words"
        ),
        "billing_actions": "Teardown",
        "box_evidence": "MADE_BEFORE_S Asking Wanted ask_results ask_seal ask_unseal created_at",
        "box_logs": "ExactLog Request",
        "box_session": "BoxSession Intake",
        "box_settings": "durable_dirs",
        "changes": "between",
        "check_runs": "NotRunnable run_words words_of",
        "connector": (
            "AT_ONCE WAITS Backoff ConnectLimit Connector Failure FileAccess Jump Keepalive Times "
            "clock_jump endpoint_from link_of read_clocks shifted"
        ),
        "engine": "BaseFleet Fleet",
        "errands": "connected elsewhere provider_word push_trainer reached says",
        "event_loop": "Faults MOST_TOLD collect_less guarded new_loop",
        "fleet_source": (
            "Account Beginnings Chronicle FirstSteps FleetSource GateClosed Given NoControlPlane Observer "
            "Pulled Tap"
        ),
        "history.history_keeper": "Memory",
        "history.moment_fleet": "RecordedFleet profile_of",
        "meters": "BookCheck LEAST_SECONDS LONGEST_SECONDS Meters checked is_priced metered",
        "open_actions": "OpenActions SETTLE_SECONDS came",
        "publisher": "Pace Publisher Questions",
        "reducers": (
            "LOG_LINES LONGEST LONGEST_LINE MOST_FOUND MOST_RUNS MOST_SERIES RING apply count extended "
            "fold rewound"
        ),
        "transfer_diary": "KEPT Page TransferNote noted read_notes",
        "unlisted": "AccountWatch ask_accounts bills",
    },
)
