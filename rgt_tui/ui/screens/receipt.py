"""The receipt of a billing action: what ended and when, its cost, its results, what still billed."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from rgt_tui.fleet import FleetSource
from rgt_tui.gate import Receipt, receipt_markdown, receipt_rows, receipt_title
from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, BoxState, FleetState, MeterKind
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import APP, Command, build_bindings, key_for
from rgt_tui.ui.notation import current_glyphs, make_displayable, money_or_dash
from rgt_tui.ui.screens.dialogs import TextDialog
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.spans import Line, Tone, dim_span, fit_text, make_line, wrap_text
from rgt_tui.ui.widgets.teardown.confirm_view import NAMES

STRONG = frozenset({"ended", "still bills", "to end that", "given up"})
"""Labels of texts that must not be missed."""
END_CHARGES = Command(
    "receipt.tear-down", ("D",), "end what still bills",
    "For a parked box: review destroying it, which ends what still bills.", "tear_down",
    dangerous=True,
)  # fmt: skip
RECEIPT: tuple[Command, ...] = (
    Command("receipt.close", ("escape", "q", "enter"), "close", "Close the receipt.", "close"),
    Command("receipt.copy", ("y",), "copy", "Copy the receipt as Markdown.", "copy"),
    END_CHARGES,
    Command("receipt.scroll-down", ("down", "pagedown"), "scroll down", "See the rest.",
            "scroll(1)"),
    Command("receipt.scroll-up", ("up", "pageup"), "scroll up", "See the start.", "scroll(-1)"),
    *(command for command in APP if command.id == "app.help"),
)  # fmt: skip
STILL_BILLED = {
    MeterKind.COMPUTE_AND_STORAGE: "compute and storage, by the provider",
    MeterKind.STORAGE_ONLY: "storage that outlived it, by the provider",
    MeterKind.NONE: "nothing, by the provider",
    MeterKind.UNKNOWN: "unknown: check the console",
}


def rows_of(receipt: Receipt | None, box: BoxState | None) -> tuple[tuple[str, str], ...]:
    """Return the (label, text) rows of a receipt.

    Without one, the provider's state of the machine.
    """
    if receipt is not None:
        return receipt_rows(receipt)
    if box is None:
        return (("receipt", translate("no receipt: rgt has not stopped or destroyed this box")),)
    meter = box.meter
    hour = ""
    if meter.per_hour:
        hour = f"{money_or_dash(meter.per_hour, meter.currency, meter.at_least)}/h: "
    return (
        ("machine", f"{meter.source}: {meter.native_status or meter.lifecycle.value}"),
        ("receipt", translate("unknown: it was not stopped from here, so its files are unknown")),
        ("still bills", f"{hour}{translate(STILL_BILLED[meter.kind])}"),
    )


def receipt_lines(rows: tuple[tuple[str, str], ...], width: int) -> list[Line]:
    """Return the rows in full, each after its label: nothing of a receipt is cut."""
    lines: list[Line] = []
    room = max(8, width - NAMES)
    strong = False
    for label, text in rows:
        # A row without a label continues the one above it.
        strong = label in STRONG if label else strong
        for number, piece in enumerate(wrap_text(text, room, Tone.STRONG if strong else Tone.TEXT)):
            shown = translate(label) if number == 0 else ""
            lines.append(make_line(dim_span(fit_text(shown, NAMES)), piece))
    return lines


def review_destroying(dialog: ModalScreen[None], receipt: Receipt | None) -> bool:
    """Replace a dialog by the review of destroying a parked box; return whether its receipt is of a park."""
    if receipt is None or receipt.verb is not BillingVerb.PARK:
        return False
    open_screen = getattr(dialog.app, "open_screen", None)
    dialog.dismiss()
    if open_screen is not None:
        open_screen("teardown", receipt.box)
    return True


class ReceiptScreen(TextDialog):
    """Shows the newest receipt of a box over the screen below."""

    PLACE: ClassVar[str] = "receipt"
    KEYS: ClassVar[tuple[Command, ...]] = RECEIPT
    BINDINGS: ClassVar[list[BindingType]] = list(build_bindings(RECEIPT))
    DEFAULT_CSS = """
    ReceiptScreen { align: center middle; }
    ReceiptScreen > Vertical {
        width: 100%; max-width: 122; height: auto; max-height: 100%; padding: 0 1; background: $background;
        border: round $rgt-faint; border-title-color: $foreground; border-title-style: bold;
        border-subtitle-color: $rgt-faint; border-subtitle-align: right;
    }
    ReceiptScreen.ascii > Vertical { border: ascii $rgt-faint; }
    ReceiptScreen #scroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    """

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__()
        self._fleet = fleet
        self.box_name = box_name
        self.receipt: Receipt | None = None
        self.is_read = False
        """Whether the search for the receipt is done."""

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The keys of the page."""
        return RECEIPT

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        with Vertical(id="page"), VerticalScroll(id="scroll"):
            yield FittedLines(self._make_lines, id="rows")

    def on_mount(self) -> None:
        """Read the receipt from disk in a worker."""
        self.set_class(not current_glyphs().braille, "ascii")
        self.run_worker(self._read_receipt(), exit_on_error=False)

    async def _read_receipt(self) -> None:
        self.receipt = await self._fleet.find_receipt(self.box_name)
        self.is_read = True
        page = self.query_one("#page", Vertical)
        if self.receipt is not None:
            title = receipt_title(self.receipt)
        else:
            title = translate("{box_name}: gone", box_name=self.box_name)
        page.border_title = Content(make_displayable(title))
        ends = ""
        if self.receipt is not None and self.receipt.verb is BillingVerb.PARK:
            ends = translate("{key} ends what still bills · ", key=key_for("receipt.tear-down"))
        keys = translate(
            "{ends}{key} copies it · {key_2} closes",
            ends=ends,
            key=key_for("receipt.copy"),
            key_2=key_for("receipt.close"),
        )
        page.border_subtitle = Content(make_displayable(keys))
        self.query_one("#rows", FittedLines).update()

    def _list_rows(self) -> tuple[tuple[str, str], ...]:
        return rows_of(self.receipt, self._fleet.state.find_box(self.box_name))

    def _make_lines(self, width: int) -> list[Line]:
        if self.is_read:
            return receipt_lines(self._list_rows(), width)
        return []

    def receive_state(self, state: FleetState, now: float) -> None:
        """Without a receipt, show the provider's newest state."""
        if self.is_read and self.receipt is None:
            self.query_one("#rows", FittedLines).update()

    def to_copy(self) -> ClipboardText:
        """Return the receipt as Markdown."""
        text = "\n".join(f"{translate(label):<{NAMES}}{text}" for label, text in self._list_rows())
        if self.receipt is not None:
            text = receipt_markdown(self.receipt)
        return ClipboardText(
            what=translate("the receipt of {box_name}", box_name=self.box_name), text=text
        )

    def action_tear_down(self) -> None:
        """Review destroying a parked box; the receipt gives way to the dialog."""
        if not review_destroying(self, self.receipt):
            self.hint(translate("nothing that rgt can end: see the row 'to end that'"))
