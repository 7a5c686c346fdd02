"""Evidence, receipts and records in Chinese: a person reads Chinese, a record on disk stays English."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from rgt_tui import language
from rgt_tui.gate import (
    ActionState,
    AuditEntry,
    AuditEvent,
    AuditLog,
    CollectedResults,
    InstanceTarget,
    Journal,
    ReceiptBook,
    facts_digest,
    objections,
    receipt_markdown,
    receipt_rows,
    receipt_title,
)
from rgt_tui.language import record_text, show_recorded, translate
from rgt_tui.model import (
    BillingVerb,
    Evidence,
    LinkState,
    Meter,
    ProviderRef,
    TrainingProcess,
    how_many,
)
from rgt_tui.profiles import load_profile
from tests.unit.gate.builders import (
    METER,
    TICKS,
    box,
    cell,
    evidence,
    group,
    proof,
    sample,
    spec,
    told,
)
from tests.unit.gate.test_receipts import park_receipt

CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"(?<![\w./-])(?:[A-Za-z][a-z']+ ){2,}[A-Za-z][a-z']+(?![\w/=(])")
"""Three English words in a row."""
COMMAND = re.compile(r"\brgt [a-z]+ \S+")


@pytest.fixture(autouse=True)
def _chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))


def cases() -> dict[str, Evidence]:
    busy = sample(
        procs=(TrainingProcess(pid=7, cmd="python train.py", started=1.0),), transfers=None
    )
    silent = box(link=LinkState.UNREACHABLE, reason="no route", sample=None)
    undone = box(cell("a", state="failed", reason="exit 1"), cell("b", state="waiting"))
    return {
        "in order": evidence(),
        "park": evidence(verb=BillingVerb.PARK),
        "busy": evidence(box(sample=busy)),
        "silent": evidence(silent),
        "undone": evidence(undone),
        "no queue": evidence(box(queues=())),
        "no profile": evidence(profile=None),
        "not listed": evidence(told=CollectedResults(), typed=""),
        "newer": evidence(told=told(group(owner=""), proofs=(proof(fingerprint="x"),))),
        "protected": evidence(box(spec=spec(protected=True)), readonly=True, unsealed="agent 1"),
        "provider": evidence(meter=Meter(error="HTTP 500")),
    }


@pytest.mark.parametrize("name", [*cases()])
def test_evidence_and_objections_have_no_english_sentence(name: str) -> None:
    found = cases()[name]
    lines = [*(item.text for item in found.items), *(why for _, why in objections(found, TICKS))]
    assert all(CHINESE.search(line) for line in lines), lines
    assert [line for line in lines if ENGLISH.search(line)] == []


def test_what_decides_is_the_same_in_both_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    chinese = {
        name: [(i.key, i.ok, i.forfeitable) for i in one.items] for name, one in cases().items()
    }
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("en"))
    english = {
        name: [(i.key, i.ok, i.forfeitable) for i in one.items] for name, one in cases().items()
    }
    assert chinese == english


def autodl_cases() -> dict[str, Evidence]:
    """Evidence with texts that something else than the gate has made: the profile, the copies."""
    profile = load_profile("autodl")
    cloud = spec(provider=ProviderRef("autodl", "i1", "me"))
    copies = told(
        group(owner=""),
        group("/root/x", owner=""),
        proofs=(proof(errors=(("a.pt", "nobody owns it"),)),),
    )
    broken = msgspec.structs.replace(
        copies,
        proofs_problem=translate(
            "cannot read {path}: {strerror}", path="/w", strerror="Input/output error"
        ),
    )
    pods = msgspec.structs.replace(METER, chosen="a is the box: 1 GPU", others={"b": "2 GPUs"})
    return {
        "no stop": evidence(box(spec=cloud), BillingVerb.PARK, profile=profile, told=copies),
        "no destroy": evidence(box(spec=cloud), profile=profile, told=broken),
        "pods": evidence(meter=pods),
        "shared network": evidence(profile=load_profile("vastai"), verb=BillingVerb.PARK),
    }


def test_the_digest_is_the_same_in_both_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run in one language and its confirmation in the other are about the same facts."""
    chinese = {name: facts_digest(found) for name, found in (cases() | autodl_cases()).items()}
    (copy,) = [item for item in autodl_cases()["no stop"].items if "a.pt" in item.text]
    assert translate("nobody owns it") in copy.text
    (_, pod) = [item for item in autodl_cases()["pods"].items if item.kind == "pods"]
    assert (CHINESE.search(pod.text) is not None, pod.fact) == (True, "b ends as well: 2 GPUs")
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("en"))
    english = {name: facts_digest(found) for name, found in (cases() | autodl_cases()).items()}
    assert {name for name in english if english[name] != chinese[name]} == set()


@pytest.mark.parametrize(
    ("text", "english"),
    [
        (translate, "the box is listing it"),
        (lambda _: how_many(3, "file"), "3 files"),
        (lambda _: how_many(1, "file"), "1 file"),
    ],
)
def test_a_text_is_recorded_in_english(text: object, english: str) -> None:
    assert callable(text)
    shown = text(english)
    assert shown != english
    assert record_text(shown) == english
    assert show_recorded(english) == shown


def test_a_sentence_with_values_is_recorded_in_english_and_shown_in_chinese_again() -> None:
    shown = "; ".join(
        (
            translate(
                "the files on the box are unknown: {problem}",
                problem=translate("the box is listing it"),
            ),
            translate("the queue {path} could not be read: {error}", path="/q 1", error="未知 x"),
        )
    )
    english = record_text(shown)
    assert english == (
        "the files on the box are unknown: the box is listing it; the queue /q 1 could not be read: 未知 x"
    )
    assert show_recorded(english) == shown


@pytest.mark.parametrize(
    "text", ["", "PUT /instances/9/", "an internal server error", "/w/a {x}; b"]
)
def test_a_text_that_is_not_of_rgt_stays_as_it_is(text: str) -> None:
    assert record_text(text) == text
    assert show_recorded(text) == text


def test_the_audit_log_and_the_journal_are_english_on_disk(tmp_path: Path) -> None:
    shown = translate("{error}. Nothing was sent.", error=translate("the machine is not off"))
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record_entry(
        AuditEntry(
            at=1.0,
            event=AuditEvent.REFUSED,
            box="lab",
            verb=BillingVerb.PARK,
            instance="9",
            text=shown,
        )
    )
    target = InstanceTarget(kind="vastai", account="me", instance="9")
    journal = Journal(tmp_path / "journal")
    with journal.lock_instance(target, "lab", BillingVerb.PARK) as action:
        action.record_intent("PUT /9")
        action.record_state(ActionState.REFUSED, shown)
    written = [
        json.loads(line)["text"] for path in tmp_path.rglob("*.jsonl") for line in path.open()
    ]
    assert sorted(written) == ["PUT /9", *["the machine is not off. Nothing was sent."] * 2]
    assert show_recorded(written[0]) in (shown, "PUT /9")


def test_a_receipt_is_english_on_disk_and_chinese_for_a_person(tmp_path: Path) -> None:
    made = park_receipt(
        said=translate("compute off, no other charges found"),
        to_end=translate("destroy it: rgt down {box} --destroy", box="lab"),
        given_up=(translate("the queue is empty"),),
    )
    book = ReceiptBook(tmp_path)
    book.save_receipt(made)
    kept = json.loads((tmp_path / "a1.json").read_text())
    assert not CHINESE.search(json.dumps(kept, ensure_ascii=False))
    assert kept["to_end"] == "destroy it: rgt down lab --destroy"
    (read,) = book.list_receipts()
    assert CHINESE.search(receipt_title(read))
    texts = [text for _, text in receipt_rows(read)]
    assert [text for text in texts if ENGLISH.search(COMMAND.sub("", text))] == []
    page = (tmp_path / "a1.md").read_text()
    assert page == receipt_markdown(read)
    assert page.startswith("# lab: ")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert [row.count("|") - row.count("\\|") for row in rows] == [7] * 4
    assert rows[1] == "|---|---|---|---|---|---|"
    labels = re.findall(r"^- \*\*(.+)\*\*: ", page, re.MULTILINE)
    assert len(labels) >= 12 and all(CHINESE.search(label) for label in labels)


def test_a_receipt_of_an_english_rgt_is_shown_in_chinese(tmp_path: Path) -> None:
    ReceiptBook(tmp_path).save_receipt(msgspec.structs.replace(park_receipt(), said="off"))
    rows = dict(receipt_rows(ReceiptBook(tmp_path).list_receipts()[0]))
    assert rows["to end that"] == translate("destroy it: rgt down {box} --destroy", box="lab")
    assert translate("pulled and verified") in rows["runs"]


@pytest.mark.parametrize("name", ["complete", "queue", "listing"])
def test_a_name_that_is_also_a_word_stays(name: str) -> None:
    english = f"{name}: the box is listing it"
    shown = show_recorded(english)
    assert shown.startswith(f"{name}: ") and shown != english
    assert record_text(shown) == english


@pytest.mark.parametrize("part", ["/a/b: cannot be read: x\n", "a: b: ", "a; b; "])
def test_a_long_text_of_a_program_is_no_recursion_without_end(part: str) -> None:
    assert record_text(part * 2000) == part * 2000
    assert show_recorded(part * 2000).startswith(part[:2])


@pytest.mark.parametrize("part", ["unreachable: ", "unreachable: x\n", "not replaced: a: "])
def test_a_text_that_matches_again_and_again_is_no_recursion_without_end(part: str) -> None:
    assert show_recorded(part * 307).endswith(part[-9:])
    again = translate("unreachable: {reason}", reason="") * 307
    assert record_text(again).startswith("unreachable: ")
