"""Calls a server with Vast.ai's own client (vastai) and prints a JSON line for each call."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from vastai.sdk import VastAI

BASE, KEY = sys.argv[1:3]
ONE = 31415926
VAST = VastAI(api_key=KEY, server_url=BASE)
CALLS: dict[str, Callable[[], object]] = {
    "show user": VAST.show_user,
    "show instances": VAST.show_instances,
    "show instance": lambda: VAST.show_instance(id=ONE),
    "show volumes": VAST.show_volumes,
    "search offers": lambda: VAST.search_offers(query="gpu_name=RTX_4090 num_gpus=1")[0],
    "search offers, bid": lambda: VAST.search_offers(query="gpu_ram>=20", type="bid")[0],
    "show invoices-v1 --charges": lambda: VAST.show_invoices_v1(charges=True)["results"][0],
    "label instance": lambda: VAST.label_instance(id=ONE, label="new-name"),
    "change bid": lambda: VAST.change_bid(id=ONE, price=0.5),
    "reboot instance": lambda: VAST.reboot_instance(id=ONE),
    "stop instance": lambda: VAST.stop_instance(id=ONE),
    "start instance": lambda: VAST.start_instance(id=ONE),
    "create instance": lambda: VAST.create_instance(
        id=9001, image="pytorch/pytorch", disk=20, label="made"
    ),
    "destroy instance": lambda: VAST.destroy_instance(id=ONE),
}

for name, call in CALLS.items():
    try:
        found, error = call(), None
    except Exception as problem:
        found, error = None, f"{type(problem).__name__}: {problem}"
    print(json.dumps({"call": name, "error": error, "found": bool(found)}))
