"""A spreadsheet in PyScript that its user and an agent edit, with one history for both.

The page shows what `formulas.Sheet` computes. A change of the agent is marked until the next one. This browser stores
the inputs, and other tabs follow.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from formulas import COLUMNS, MAX_INPUT, ROWS, FormulaError, Sheet, check
from pyscript import document, when, window
from pyscript.js_modules import tabrelay

from tabserver import ToolError, tool
from tabserver.page import offer

STORED = "tabrelay-example-sheet"
MOST_STEPS = 50
TRIP = """
Item   | Price | Number | Total
Train  | 64    | 2      | =B2*C2
Hotel  | 95    | 3      | =B3*C3
Food   | 28    | 6      | =B4*C4
Museum | 14    | 2      | =B5*C5
Sum    |       |        | =sum(D2:D5)
Budget |       |        | 600
Left   |       |        | =D7-D6
"""
Address = Annotated[str, f"A1 to {COLUMNS[-1]}{ROWS}"]


@dataclass
class Cell:
    """A cell that is not empty."""

    address: str
    input: Annotated[str, "what was typed; a formula begins with ="]
    value: str


class Board:
    """The sheet on the page, and the states before it."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.steps: list[Sheet] = []
        self.by_agent: frozenset[str] = frozenset()
        self.before = ""  # what the cell that has the focus contained when it got it

    def write(self, changes: dict[str, str], *, is_agent: bool = False) -> None:
        self.steps = [*self.steps, self.sheet][-MOST_STEPS:]
        self.show(self.sheet.with_inputs(changes), frozenset(changes) if is_agent else frozenset())

    def undo(self) -> bool:
        if not self.steps:
            return False
        self.show(self.steps.pop())
        return True

    def show(self, sheet: Sheet, by_agent: frozenset[str] = frozenset()) -> None:
        self.sheet, self.by_agent = sheet, by_agent
        window.localStorage.setItem(STORED, json.dumps(sheet.inputs))
        self.draw()

    def draw(self) -> None:
        document.querySelector("#undo").disabled = not self.steps
        for field in document.querySelectorAll("#cells input"):
            address = field.name
            value = self.sheet.value(address)
            is_wrong = isinstance(value, FormulaError)
            if not field.matches(":focus"):
                field.value = shown(value)
            field.title = str(value) if is_wrong else self.sheet.inputs.get(address, "")
            field.classList.toggle("is-wrong", is_wrong)
            field.classList.toggle("is-number", not is_wrong and not isinstance(value, str))
            field.parentElement.classList.toggle("is-new", address in self.by_agent)


def shown(value: object) -> str:
    if isinstance(value, FormulaError):
        return "#error"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def trip() -> dict[str, str]:
    rows = [[part.strip() for part in line.split("|")] for line in TRIP.strip().splitlines()]
    return {f"{COLUMNS[x]}{y + 1}": text for y, row in enumerate(rows) for x, text in enumerate(row) if text}


def stored() -> dict[str, str]:
    """The inputs that this browser has kept, or the example."""
    try:
        found = json.loads(window.localStorage.getItem(STORED) or "")
        return {check(address): str(text)[:MAX_INPUT] for address, text in found.items()}
    except (ValueError, AttributeError, FormulaError):
        return trip()


# -- for agents --------------------------------------------------------------------------------------------------------


@tool(read_only=True)
def read_sheet() -> list[Cell]:
    """All cells that are not empty, with what was typed and what it amounts to."""
    return cells(board.sheet.inputs)


@tool
def write_cells(
    changes: Annotated[dict[str, str], "new inputs by address, such as B3; an empty one clears the cell"],
) -> list[Cell]:
    """Type into cells. Formulas have Python's operators, and sum, mean, min, max, count, round and abs of ranges."""
    changes = {checked(address): text for address, text in changes.items()}
    for address, text in changes.items():
        if len(text) > MAX_INPUT:
            raise ToolError(f"{address}: at most {MAX_INPUT} characters.")
    board.write(changes, is_agent=True)
    return cells(changes)


@tool
def seek(cell: Address, goal: float, change: Address) -> Cell:
    """Find the number in one cell that gives another cell a value, and type it there."""
    change = checked(change)
    try:
        found = board.sheet.seek(cell, goal, change)
    except FormulaError as error:
        raise ToolError(str(error)) from None
    board.write({change: f"{found:.15g}"}, is_agent=True)
    return cells([change])[0]


@tool
def undo() -> str:
    """Take back the last change, of the user or of an agent."""
    return "Undone." if board.undo() else "Nothing is left to undo."


@tool(destructive=True)
def clear_sheet() -> str:
    """Empty all cells."""
    board.write(dict.fromkeys(board.sheet.inputs, ""), is_agent=True)
    return "The sheet is empty."


def cells(addresses: Any) -> list[Cell]:
    sheet = board.sheet
    values = {address: sheet.value(address) for address in sorted(addresses, key=lambda one: (int(one[1:]), one[0]))}
    return [
        Cell(address, sheet.inputs.get(address, ""), str(value) if isinstance(value, FormulaError) else shown(value))
        for address, value in values.items()
    ]


def checked(address: str) -> str:
    try:
        return check(address)
    except FormulaError as error:
        raise ToolError(str(error)) from None


# -- for people --------------------------------------------------------------------------------------------------------


def make_table() -> None:
    head = "".join(f"<th scope='col'>{column}</th>" for column in COLUMNS)
    rows = (
        f"<tr><th scope='row'>{row}</th>"
        + "".join(
            f"<td><input name='{column}{row}' aria-label='{column}{row}' maxlength='{MAX_INPUT}' autocomplete='off' "
            "spellcheck='false' /></td>"
            for column in COLUMNS
        )
        + "</tr>"
        for row in range(1, ROWS + 1)
    )
    document.querySelector(
        "#cells"
    ).innerHTML = f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"


@when("focusin", "#cells")
def show_input(event: Any) -> None:
    board.before = board.sheet.inputs.get(event.target.name, "").strip()
    event.target.value = board.before
    event.target.select()


@when("focusout", "#cells")
def take_input(event: Any) -> None:
    address, text = event.target.name, event.target.value.strip()
    # A text that was not typed does not replace what an agent wrote into this cell meanwhile.
    if text not in (board.before, board.sheet.inputs.get(address, "").strip()):
        board.write({address: text})
    else:
        event.target.value = shown(board.sheet.value(address))


@when("keydown", "#cells")
def move(event: Any) -> None:
    """Enter goes down, as in other spreadsheets; Escape takes the typed text back."""
    address = event.target.name
    if event.key == "Escape":
        event.target.value = board.before = board.sheet.inputs.get(address, "").strip()
    elif event.key == "Enter":
        step = -1 if event.shiftKey else 1
        below = document.querySelector(f"[name={address[0]}{int(address[1:]) + step}]")
        below.focus() if below else event.target.blur()


@when("click", "#undo")
def take_back(_: Any) -> None:
    board.undo()


@when("click", "#again")
def begin_again(_: Any) -> None:
    board.write({**dict.fromkeys(board.sheet.inputs, ""), **trip()})


def follow(event: Any) -> None:
    if event.key == STORED:
        board.sheet, board.by_agent = Sheet(stored()), frozenset()
        board.draw()


board = Board(Sheet(stored()))
make_table()
board.draw()
when("storage", window)(follow)
document.querySelector("#starting").hidden = True
document.querySelector("#again").disabled = False
offer(
    tabrelay.connect,
    server="sheet",
    title="Spreadsheet",
    instructions="Call read_sheet first. Keep totals as formulas, so that they follow the user's changes.",
)
