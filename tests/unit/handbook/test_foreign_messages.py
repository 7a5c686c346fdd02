"""Messages in other languages lead to the pages of the English ones, and are shown as they were written."""

from __future__ import annotations

import pytest

from rgt_tui.handbook import search_text, shipped_pages
from rgt_tui.handbook.foreign_messages import ForeignMessage, foreign_messages, translate_line

PAGES = tuple(shipped_pages().values())
# Printed by bash 5.2 and coreutils 9.1 with LC_ALL set to each language.
PRINTED = [
    ("./a.sh: 第 3 行：27444 已杀死               python train.py", "U9"),
    ("./a.sh: 第 4 行：27445 段错误               （核心已转储） python train.py", "SEG1"),
    ("./a.sh: 行 8: accelerate: 未找到命令", "CMD1"),
    ("cp: 写入 '/dev/full' 时出错: 设备上没有空间", "U7"),
    ("./a.sh: Zeile 3: 27501 Getötet                python train.py", "U9"),
    ("./a.sh: Zeile 4: 27502 Speicherzugriffsfehler  python train.py", "SEG1"),
    ("./a.sh: Zeile 13: echo: Schreibfehler: Auf dem Gerät ist kein Speicherplatz mehr verfügbar.", "U7"),
    ("./a.sh: 3 行: 27565 強制終了            python train.py", "U9"),
    ("mkdir: ディレクトリ `/x/y' を作成できません: そのようなファイルやディレクトリはありません", "PATH1"),
    ("./a.sh : ligne 3 : 27643 Processus arrêté      python train.py", "U9"),
    ("./a.sh : ligne 6 : 27649 Erreur du bus           python train.py", "SEG1"),
    ("dd: erreur d'écriture dans '/dev/full': Aucun espace disponible sur le périphérique", "U7"),
    ("./a.sh : ligne 5 : 27648 Abandon                 python train.py", "SEG1"),
    ("./a.sh: línea 8: accelerate: orden no encontrada", "CMD1"),
    ("./a.sh: línea 4: 27736 Violación de segmento  python train.py", "SEG1"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "page"), PRINTED)
def test_a_printed_line_leads_to_the_page_and_is_shown_unchanged(line: str, page: str) -> None:
    found = {hit.id: hit.line for hit in search_text(line, PAGES)}
    assert found.get(page) == line


def fill(text: str) -> str:
    return text.replace("%s", "x").replace("%d", "7").replace("%c", "x").replace("%lu", "7")


@pytest.mark.parametrize("message", foreign_messages()[::11], ids=lambda one: one.text[:30])
def test_a_message_leads_to_no_fewer_pages_than_in_english(message: ForeignMessage) -> None:
    if not message.needle:
        return
    for frame in ("cp: a: {}", "run.sh: line 3: 71 {}            python train.py"):
        english, foreign = (
            {hit.id for hit in search_text(frame.format(fill(text)), PAGES)}
            for text in (message.english, message.text)
        )
        assert english <= foreign, frame.format(fill(message.text))


@pytest.mark.parametrize(
    ("line", "encoding", "page"),
    [
        ("'accelerate' 不是内部或外部命令，也不是可运行的程序", "gbk", "CMD1"),
        ("./a.sh: 行 12: 31270 已杀死               python train.py", "gbk", "U9"),
        ("cp: a: デバイスに空き領域がありません", "cp932", "U7"),
        ("./a.sh: Zeile 12: 31270 Getötet                python train.py", "latin-1", "U9"),
    ],
)
def test_a_line_in_an_older_encoding_among_lines_in_utf_8(
    line: str, encoding: str, page: str
) -> None:
    log = "Training: 100%|██████| 5/5\n".encode() + line.encode(encoding) + "\n训练\n".encode()
    assert {hit.id: hit.line for hit in search_text(log, PAGES)}.get(page) == line


@pytest.mark.parametrize(
    "line",
    [
        "Training beendet", "训练 停止", "Entraînement terminé : 100 %", "学習を中止しました", "le modèle est prêt",
        "Fichier enregistré « a.pt »", "step 5 loss 2.1", "", "Terminé",
        "Beendet", "Terminado", "Abandon",
    ],
)  # fmt: skip
def test_ordinary_words_stay_as_they_are(line: str) -> None:
    assert translate_line(line) == line
    assert search_text(line, PAGES) == []
