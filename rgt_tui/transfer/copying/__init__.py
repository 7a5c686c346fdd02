"""Pulling, without the network: what a box lists, what is missing, what to request and write."""

from __future__ import annotations

from rgt_tui.transfer.copying.box_listing import (
    PARTS,
    Listing,
    ListingError,
    ListingReader,
    Refused,
    RemoteFile,
    beneath,
    folds_case,
)
from rgt_tui.transfer.copying.fetching import Fetcher, empty_but_listed
from rgt_tui.transfer.copying.local_copy import LandingFailed
from rgt_tui.transfer.copying.piece_stream import LONGEST_LINE, StreamError
from rgt_tui.transfer.copying.pull_plan import (
    RANGE_BYTES,
    Plan,
    PullProgress,
    Rate,
    parts_folder,
    plan,
    remove_left_parts,
    time_to_go,
)
from rgt_tui.transfer.copying.request_stream import Stream

__all__ = [
    "LONGEST_LINE",
    "PARTS",
    "RANGE_BYTES",
    "Fetcher",
    "LandingFailed",
    "Listing",
    "ListingError",
    "ListingReader",
    "Plan",
    "PullProgress",
    "Rate",
    "Refused",
    "RemoteFile",
    "Stream",
    "StreamError",
    "beneath",
    "empty_but_listed",
    "folds_case",
    "parts_folder",
    "plan",
    "remove_left_parts",
    "time_to_go",
]
