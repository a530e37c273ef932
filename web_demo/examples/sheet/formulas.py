"""Sheet of cells with formulas: `=B2*C2`, `=sum(D2:D5)`, in Python's syntax and with ranges of cells.

Upper and lower case are the same in names of cells and functions. A formula is parsed to Python's syntax tree,
and only the operators and functions that are listed here are evaluated. A formula reaches no names, attributes or
modules of Python. Pure: it has no document and no storage.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable
from statistics import fmean

COLUMNS = "ABCDEF"
ROWS = 12
MAX_INPUT = 200
STEPS = 60  # of a search

Value = int | float | str

OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "mean": fmean,
    "average": fmean,
    "min": min,
    "max": max,
    "count": len,
    "round": lambda values: round(values[0], int(values[1]) if len(values) > 1 else 0),
    "abs": lambda values: abs(*values),
}
ADDRESS = re.compile(rf"[{COLUMNS}]([1-9]|1[0-2])")
RANGE = re.compile(r"\b([A-Z]\d+):([A-Z]\d+)\b", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")


class FormulaError(Exception):
    """Why a formula has no value, in words."""


class Sheet:
    """Cells by address. An input that begins with `=` is a formula; other inputs are numbers or texts."""

    def __init__(self, inputs: dict[str, str]) -> None:
        self.inputs = {check(address): text for address, text in inputs.items() if text.strip()}
        self._values: dict[str, Value | FormulaError] = {}
        self._open: list[str] = []

    def with_inputs(self, changes: dict[str, str]) -> "Sheet":
        return Sheet({**self.inputs, **changes})

    def value(self, address: str) -> Value | FormulaError:
        """A FormulaError is returned, not raised: the other cells have values."""
        if address not in self._values:
            try:
                self._values[address] = self._compute(check(address))
            except FormulaError as error:
                self._values[address] = error
        return self._values[address]

    def seek(self, cell: str, goal: float, change: str) -> float:
        """The number in `change` for which `cell` has the value `goal`. Secant method. Raises FormulaError."""

        cell, change = check(cell), check(change)

        def miss(number: float) -> float:
            return _number(self.with_inputs({change: repr(number)}).value(cell)) - goal

        here = _number(self.value(change))
        there = here + 1.0
        far, near = miss(here), miss(there)
        for _ in range(STEPS):
            if abs(near) < 1e-9:
                return round(there, 6)
            if far == near:
                break
            here, there, far = there, there - near * (there - here) / (near - far), near
            near = miss(there)
        raise FormulaError(f"No number in {change} gives {cell} the value {goal:g}.")

    def _compute(self, address: str) -> Value:
        text = self.inputs.get(address, "").strip()
        if not text.startswith("="):
            return _plain(text)
        if address in self._open:
            raise FormulaError(f"{address} depends on itself.")
        self._open.append(address)
        try:
            named = RANGE.sub(lambda found: f"({','.join(_between(*found.groups()))},)", text[1:].strip())
            return self._evaluate(ast.parse(named, mode="eval").body)
        except SyntaxError:
            raise FormulaError(f"“{text}” is not a formula. Write for example =B2*C2 or =sum(D2:D5).") from None
        except ZeroDivisionError:
            raise FormulaError("This divides by zero.") from None
        except (TypeError, ValueError, IndexError, OverflowError):
            raise FormulaError("This needs numbers, and a cell is empty or a text.") from None
        finally:
            self._open.pop()

    def _evaluate(self, node: ast.AST) -> Value:
        match node:
            case ast.Constant(value=int() | float() | str() as value):
                return value
            case ast.Name(id=name):
                address = check(name)
                found = self.value(address)
                if isinstance(found, FormulaError):
                    raise found if address in self._open else FormulaError(f"{address}: {found}")
                return found
            case ast.UnaryOp(op=sign, operand=operand) if type(sign) in OPERATORS:
                return _result(OPERATORS[type(sign)](_number(self._evaluate(operand))))
            case (
                ast.BinOp(left=left, op=sign, right=right) | ast.Compare(left=left, ops=[sign], comparators=[right])
            ) if type(sign) in OPERATORS:
                return _result(OPERATORS[type(sign)](_number(self._evaluate(left)), _number(self._evaluate(right))))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._evaluate(body if self._evaluate(test) else orelse)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name.lower() in FUNCTIONS:
                return _result(FUNCTIONS[name.lower()](list(self._numbers(arguments))))
        raise FormulaError(f"A formula has cells, ranges, + - * / %, comparisons, and {', '.join(FUNCTIONS)}.")

    def _numbers(self, arguments: Iterable[ast.expr]) -> Iterable[float]:
        """Empty cells and texts of a range are left out, as in other spreadsheets."""
        for argument in arguments:
            if isinstance(argument, ast.Tuple):
                found = (self._evaluate(cell) for cell in argument.elts)
                yield from (float(value) for value in found if not isinstance(value, str))
            else:
                yield _number(self._evaluate(argument))


def check(address: str) -> str:
    """The address in capitals."""
    if not ADDRESS.fullmatch(address.upper()):
        raise FormulaError(f"“{address}” is not a cell. The cells are A1 to {COLUMNS[-1]}{ROWS}.")
    return address.upper()


def _between(first: str, last: str) -> list[str]:
    """From any corner to the opposite one."""
    left, right = sorted(check(one)[0] for one in (first, last))
    top, bottom = sorted(int(one[1:]) for one in (first, last))
    return [f"{column}{row}" for column in COLUMNS if left <= column <= right for row in range(top, bottom + 1)]


def _plain(text: str) -> Value:
    """A comma separates thousands. `1,5` is a text, because it is not known what it means."""
    try:
        number = float(text.replace(",", "") if THOUSANDS.fullmatch(text) else text)
    except ValueError:
        return text
    return _result(number) if math.isfinite(number) else text


def _result(number: float) -> Value:
    """Whole numbers have no fraction. Formulas compute with floats, so that no number grows without end."""
    if not math.isfinite(number):
        raise FormulaError("The number is too large.")
    return int(number) if float(number).is_integer() and abs(number) < 1e15 else float(number)


def _number(value: Value | FormulaError) -> float:
    if isinstance(value, FormulaError):
        raise value
    if isinstance(value, str):
        raise FormulaError(f"“{value}” is not a number." if value else "A cell that this needs is empty.")
    return float(value)
