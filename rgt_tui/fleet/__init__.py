"""The fleet: one session per box, merged into the states that screens and commands read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.fleet.alerting import ALERTING_PACES, FleetAlerting
    from rgt_tui.fleet.attention import (
        ATTENTION_PACES,
        FOR_ONE_QUESTION,
        Attention,
        MemoryBudget,
        SamplingPaces,
        cap_per_item,
        cut_to_budget,
        describe_dropped,
        estimate_bytes,
        sampling_interval,
        settings_for_size,
    )
    from rgt_tui.fleet.billing_actions import Teardown
    from rgt_tui.fleet.box_evidence import (
        EVIDENCE_LIMITS,
        EvidenceQueries,
        ResultsRequest,
        created_at,
        request_results,
        request_seal,
        request_unseal,
    )
    from rgt_tui.fleet.box_logs import ExactLog, ExactLogRequest
    from rgt_tui.fleet.box_session import BoxSession
    from rgt_tui.fleet.changes import events_between
    from rgt_tui.fleet.check_runs import NotRunnable, check_arguments, run_check_command
    from rgt_tui.fleet.connector import (
        CONNECT_PACES,
        WAITS,
        Backoff,
        ClockJump,
        ClockTimes,
        ConnectFailure,
        ConnectLimit,
        Connector,
        FileAccess,
        Keepalive,
        clock_jump,
        endpoint_from,
        link_after_failure,
        read_clocks,
        shift_state,
    )
    from rgt_tui.fleet.engine import BaseFleet, Fleet
    from rgt_tui.fleet.errands import (
        connected,
        connected_agent,
        durable_dirs,
        find_moved_address,
        meter_text,
        provider_word,
        push_trainer,
    )
    from rgt_tui.fleet.event_loop import (
        MOST_TOLD,
        FaultReporter,
        new_loop,
        reduce_collection,
        run_guarded,
    )
    from rgt_tui.fleet.fleet_source import (
        ActionTerms,
        Beginnings,
        Chronicle,
        FirstSteps,
        FleetObserver,
        FleetSource,
        GateClosed,
        NoControlPlane,
        NotOffered,
        PlatformAccount,
        PullResult,
        ReadOnlyFleet,
        Tap,
    )
    from rgt_tui.fleet.frame_intake import FrameIntake
    from rgt_tui.fleet.history.history_keeper import HistoryRecorder
    from rgt_tui.fleet.history.moment_fleet import RecordedFleet, profile_of
    from rgt_tui.fleet.meters import (
        METER_LIMITS,
        BookCheck,
        FleetMeters,
        build_local_meter,
        extend_book_check,
        is_priced,
    )
    from rgt_tui.fleet.open_actions import SETTLE_SECONDS, OpenActions, outcome_of_action
    from rgt_tui.fleet.publisher import JudgePace, Publisher, Questions
    from rgt_tui.fleet.reducers import (
        BOX_LIMITS,
        apply_frame,
        count_frame,
        extend_log,
        fold_points,
        rewind_run,
    )
    from rgt_tui.fleet.transfer_diary import (
        KEPT,
        DiaryPage,
        TransferNote,
        noted_transfer,
        read_notes,
    )
    from rgt_tui.fleet.unlisted import AccountWatch, ask_accounts, build_bills
    from rgt_tui.fleet.work.fix_trials import (
        DiskFigures,
        FixRefused,
        FixTrials,
        OpenHandle,
        RemovalPreview,
    )

__all__ = [
    "ALERTING_PACES",
    "ATTENTION_PACES",
    "BOX_LIMITS",
    "CONNECT_PACES",
    "EVIDENCE_LIMITS",
    "FOR_ONE_QUESTION",
    "KEPT",
    "METER_LIMITS",
    "MOST_TOLD",
    "SETTLE_SECONDS",
    "WAITS",
    "AccountWatch",
    "ActionTerms",
    "Attention",
    "Backoff",
    "BaseFleet",
    "Beginnings",
    "BookCheck",
    "BoxSession",
    "Chronicle",
    "ClockJump",
    "ClockTimes",
    "ConnectFailure",
    "ConnectLimit",
    "Connector",
    "DiaryPage",
    "DiskFigures",
    "EvidenceQueries",
    "ExactLog",
    "ExactLogRequest",
    "FaultReporter",
    "FileAccess",
    "FirstSteps",
    "FixRefused",
    "FixTrials",
    "Fleet",
    "FleetAlerting",
    "FleetMeters",
    "FleetObserver",
    "FleetSource",
    "FrameIntake",
    "GateClosed",
    "HistoryRecorder",
    "JudgePace",
    "Keepalive",
    "MemoryBudget",
    "NoControlPlane",
    "NotOffered",
    "NotRunnable",
    "OpenActions",
    "OpenHandle",
    "PlatformAccount",
    "Publisher",
    "PullResult",
    "Questions",
    "ReadOnlyFleet",
    "RecordedFleet",
    "RemovalPreview",
    "ResultsRequest",
    "SamplingPaces",
    "Tap",
    "Teardown",
    "TransferNote",
    "apply_frame",
    "ask_accounts",
    "build_bills",
    "build_local_meter",
    "cap_per_item",
    "check_arguments",
    "clock_jump",
    "connected",
    "connected_agent",
    "count_frame",
    "created_at",
    "cut_to_budget",
    "describe_dropped",
    "durable_dirs",
    "endpoint_from",
    "estimate_bytes",
    "events_between",
    "extend_book_check",
    "extend_log",
    "find_moved_address",
    "fold_points",
    "is_priced",
    "link_after_failure",
    "meter_text",
    "new_loop",
    "noted_transfer",
    "outcome_of_action",
    "profile_of",
    "provider_word",
    "push_trainer",
    "read_clocks",
    "read_notes",
    "reduce_collection",
    "request_results",
    "request_seal",
    "request_unseal",
    "rewind_run",
    "run_check_command",
    "run_guarded",
    "sampling_interval",
    "settings_for_size",
    "shift_state",
]

__getattr__ = imported_later(
    __name__,
    {
        "alerting": "FleetAlerting ALERTING_PACES",
        "attention": (
            "ATTENTION_PACES FOR_ONE_QUESTION Attention MemoryBudget SamplingPaces "
            "sampling_interval cap_per_item "
            "settings_for_size estimate_bytes cut_to_budget describe_dropped"
        ),
        "billing_actions": "Teardown",
        "box_evidence": "EVIDENCE_LIMITS EvidenceQueries ResultsRequest request_results "
        "request_seal request_unseal created_at",
        "box_logs": "ExactLog ExactLogRequest",
        "box_session": "BoxSession",
        "frame_intake": "FrameIntake",
        "changes": "events_between",
        "check_runs": "NotRunnable run_check_command check_arguments",
        "connector": (
            "CONNECT_PACES WAITS Backoff ConnectLimit Connector ConnectFailure FileAccess "
            "ClockJump Keepalive ClockTimes clock_jump endpoint_from link_after_failure "
            "read_clocks shift_state"
        ),
        "engine": "BaseFleet Fleet",
        "errands": "connected connected_agent durable_dirs find_moved_address meter_text "
        "provider_word push_trainer",
        "event_loop": "FaultReporter MOST_TOLD reduce_collection run_guarded new_loop",
        "fleet_source": (
            "PlatformAccount Beginnings Chronicle FirstSteps FleetSource GateClosed ActionTerms "
            "ReadOnlyFleet "
            "NoControlPlane NotOffered FleetObserver "
            "PullResult Tap"
        ),
        "history.history_keeper": "HistoryRecorder",
        "history.moment_fleet": "RecordedFleet profile_of",
        "meters": "BookCheck METER_LIMITS FleetMeters extend_book_check is_priced build_local_meter",
        "open_actions": "OpenActions SETTLE_SECONDS outcome_of_action",
        "publisher": "JudgePace Publisher Questions",
        "reducers": ("BOX_LIMITS apply_frame count_frame extend_log fold_points rewind_run"),
        "transfer_diary": "KEPT DiaryPage TransferNote noted_transfer read_notes",
        "work.fix_trials": "DiskFigures FixRefused FixTrials OpenHandle RemovalPreview",
        "unlisted": "AccountWatch ask_accounts build_bills",
    },
)
