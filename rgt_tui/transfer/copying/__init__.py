"""Pulling, without the network: what a box lists, what is missing, what to request and write."""

from __future__ import annotations

from rgt_tui.transfer.copying.box_listing import (
    PARTS,
    BoxListing,
    ListingError,
    ListingReader,
    RefusedFile,
    RemoteFile,
    destination_path,
    folds_case,
)
from rgt_tui.transfer.copying.fetching import PullFetcher, empty_but_listed
from rgt_tui.transfer.copying.local_copy import LandingFailed
from rgt_tui.transfer.copying.piece_stream import LONGEST_LINE, StreamError
from rgt_tui.transfer.copying.pull_plan import (
    RANGE_BYTES,
    PullPlan,
    PullProgress,
    TransferRate,
    parts_folder,
    plan_pull,
    remove_left_parts,
    time_to_go,
)
from rgt_tui.transfer.copying.request_stream import RequestStream

__all__ = [
    "LONGEST_LINE",
    "PARTS",
    "RANGE_BYTES",
    "BoxListing",
    "LandingFailed",
    "ListingError",
    "ListingReader",
    "PullFetcher",
    "PullPlan",
    "PullProgress",
    "RefusedFile",
    "RemoteFile",
    "RequestStream",
    "StreamError",
    "TransferRate",
    "destination_path",
    "empty_but_listed",
    "folds_case",
    "parts_folder",
    "plan_pull",
    "remove_left_parts",
    "time_to_go",
]
