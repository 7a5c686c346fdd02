"""The comparison of exchanges with a platform's table finds what does not fit, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rgt_tui.demo import LocalPod
from rgt_tui.profiles import load_api_tables
from tests.contract.providers.api_check import answer_faults, request_faults

TABLE = load_api_tables()["runpod"]
POD = LocalPod("p", "lab", 0.0, networks=(("v", "/net"),), host="203.0.113.7", port=22).to_json(1.0)
PODS = "/v2/pods"


def put(**changed: Any) -> Callable[[dict[str, Any]], object]:
    return lambda pod: {**pod, **changed}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda pod: pod, ""),
        (
            lambda pod: {key: value for key, value in pod.items() if key != "cost"},
            "cost is missing",
        ),
        (put(cost="1.38"), "cost is '1.38', not a number"),
        (put(cost=True), "cost is True, not a number"),
        (put(cost=1), ""),
        (put(disk=40.5), "disk is 40.5, not a integer"),
        (put(status="QUANTUM"), "status is 'QUANTUM', not one of PROVISIONING"),
        (put(actions=["stop", "explode"]), "actions[] is 'explode', not one of start"),
        (put(actions="stop"), "actions is 'stop', not a list"),
        (put(template=None), ""),
        (put(name=None), "name is None, not a string"),
        (put(globalNetworking=False), "globalNetworking is False, not GlobalNetworking"),
        (put(cpu=None), "cpu is None, not Cpu"),
        (put(createdAt="yesterday"), "createdAt is 'yesterday', not a time"),
        (put(env={"A": 1}), "env[] is 1, not a string"),
        (put(spot=True), "spot: no such field"),
        (lambda pod: [], "is [], not Pod"),
    ],
)
def test_an_answer(change: Any, fault: str) -> None:
    body = json.dumps(change(POD)).encode()
    found = list(answer_faults(TABLE, "GET", f"{PODS}/p", 200, body))
    assert [
        one.removeprefix("GET /v2/pods/{id}: 200").lstrip(". ")[: len(fault)] for one in found
    ] == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "fault"),
    [
        ("GET", PODS, {"includeClusterPods": "true", "limit": "100", "cursor": "c"}, b"", ""),
        ("GET", PODS, {"page": "2"}, b"", "no parameter page"),
        ("GET", PODS, {"limit": "all"}, b"", "limit=all is not integer"),
        ("GET", PODS, {"includeClusterPods": "yes"}, b"", "includeClusterPods=yes is not boolean"),
        ("GET", "/v2/billing/pods", {"startTime": "now"}, b"", "startTime=now is not time"),
        ("GET", PODS, {}, b"{}", "takes no body"),
        ("PUT", PODS, {}, b"", "no such call"),
        ("POST", f"{PODS}/p/action", {}, b'{"action": "stop"}', ""),
        ("POST", f"{PODS}/p/action", {}, b"", "sent is None, not PodActionRequest"),
        ("POST", f"{PODS}/p/action", {}, b'{"action": "pause"}', "sent.action is 'pause'"),
        ("POST", PODS, {}, b'{"image": "i"}', "sent.name is missing"),
    ],
)
def test_a_request(method: str, path: str, query: dict[str, str], body: bytes, fault: str) -> None:
    found = list(request_faults(TABLE, method, path, query, body))
    assert len(found) == bool(fault)
    assert not fault or fault in found[0]


@pytest.mark.parametrize(
    ("filters", "fault"),
    [
        ('{"day": {"gte": 1, "lte": 2}, "type": {"in": ["instance"]}}', ""),
        ('{"day": {"gte": 1}}', "select_filters.day.lte is missing"),
        (
            '{"day": {"gte": 1, "lte": 2}, "type": {"in": ["boat"]}}',
            "select_filters.type.in[] is 'boat'",
        ),
        ("day", "select_filters is b'day', not ChargeFilters"),
    ],
)
def test_a_parameter_that_is_json_is_read(filters: str, fault: str) -> None:
    table = load_api_tables()["vastai"]
    found = list(request_faults(table, "GET", "/api/v0/charges/", {"select_filters": filters}, b""))
    assert len(found) == bool(fault)
    assert not fault or fault in found[0]


SSH_KEY = {"id": 7, "fingerprint": "3b:16", "public_key": "ssh-ed25519 AAAA", "name": "laptop"}


@pytest.mark.parametrize(
    ("platform", "path", "data", "fault"),
    [
        ("digitalocean", "/v2/account/keys/7", {"ssh_key": SSH_KEY}, ""),
        (
            "digitalocean",
            "/v2/account/keys/7",
            {"ssh_key": {**SSH_KEY, "id": "7"}},
            "ssh_key.id is '7'",
        ),
        (
            "lambda",
            "/api/v1/ssh-keys",
            {"data": [{"id": "k", "name": "laptop"}]},
            "public_key is missing",
        ),
        ("lambda", "/api/v1/ssh-keys", {"data": [], "next": ""}, "next: no such field"),
    ],
)
def test_the_tables_of_digitalocean_and_lambda_are_used(
    platform: str, path: str, data: object, fault: str
) -> None:
    found = list(
        answer_faults(load_api_tables()[platform], "GET", path, 200, json.dumps(data).encode())
    )
    assert len(found) == bool(fault)
    assert not fault or fault in found[0]


def test_a_status_that_the_call_does_not_have_and_a_body_where_none_belongs() -> None:
    assert list(answer_faults(TABLE, "DELETE", f"{PODS}/p", 204, b"")) == []
    assert list(answer_faults(TABLE, "DELETE", f"{PODS}/p", 204, b"{}")) == [
        "DELETE /v2/pods/{id}: 204 has no body"
    ]
    assert "not QueryAnswer" in next(answer_faults(TABLE, "POST", "/graphql", 200, b"<html>"))
