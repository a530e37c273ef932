"""Formulas of the example spreadsheet: values, errors in words, searches, and what a formula can't reach."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "web_demo" / "examples" / "sheet" / "formulas.py"
SPEC = importlib.util.spec_from_file_location("sheet_formulas", FILE)
assert SPEC is not None and SPEC.loader is not None
formulas: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(formulas)


def values(**inputs: str) -> dict[str, Any]:
    sheet = formulas.Sheet(inputs)
    return {
        address: found if not isinstance(found := sheet.value(address), Exception) else str(found) for address in inputs
    }


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("=A1*2+1", 13),
        ("=sum(A1:B2)", 10),
        ("=mean(A1:A2)", 5),
        ("=count(A1:B2)", 4),
        ("=round(A1/B1, 2)", 6),
        ("=round(10/3, 2)", 3.33),
        ("=-A1 % 4", 2),
        ("=A2 if A1 > 5 else 0", 4),
        ("=min(A1, A2, 3)", 3),
        ("=C1", "text"),
        ("=SUM(a1:b2) + b1", 11),
        ("=sum(B2:A1)", 10),
        ("=Average(A1, A2)", 5),
        ("1,200.50", 1200.5),
        ("1,5", "1,5"),
        ("nan", "nan"),
        ("=1/0", "This divides by zero."),
        ("=A1 +", "“=A1 +” is not a formula. Write for example =B2*C2 or =sum(D2:D5)."),
        ("=C1*2", "“text” is not a number."),
        ("=D9+1", "A cell that this needs is empty."),
        ("=d1", "D1 depends on itself."),
        ("=Z1", "“Z1” is not a cell. The cells are A1 to F12."),
        ("=sum(A1:Z9)", "“Z9” is not a cell. The cells are A1 to F12."),
        ("=1e300*1e300", "The number is too large."),
    ],
)
def test_a_formula_has_a_value_or_a_reason_in_words(formula: str, value: object) -> None:
    assert values(A1="6", A2="4", B1="1", B2="-1", C1="text", D1=formula)["D1"] == value


@pytest.mark.parametrize(
    "formula", ["=__import__('os')", "=A1.real", "=[1][0]", "=(lambda: 1)()", "=9**99", "='a'*9", "=f'{A1}'"]
)
def test_a_formula_reaches_nothing_of_python(formula: str) -> None:
    value = values(A1="1", D1=formula)["D1"]
    assert "A formula has cells" in value or "is not a number" in value


def test_numbers_that_grow_from_cell_to_cell_end() -> None:
    cells = {f"A{row}": f"=A{row - 1}*A{row - 1}" for row in range(2, 13)}
    cells |= {"B1": "=A12*A12", **{f"B{row}": f"=B{row - 1}*B{row - 1}" for row in range(2, 13)}}
    assert "too large" in values(A1="9999", **cells)["B12"]


def test_cells_that_depend_on_each_other_have_no_value() -> None:
    found = values(A1="=B1", B1="=A1", C1="=5")
    assert found["C1"] == 5 and "depends on itself" in found["A1"] and "depends on itself" in found["B1"]


def test_a_search_finds_the_number_that_gives_a_cell_its_value() -> None:
    sheet = formulas.Sheet({"A1": "95", "A2": "=A1*3+128", "A3": "text"})
    assert sheet.seek("a2", 500, "A1") == 124
    with pytest.raises(formulas.FormulaError, match="No number in A3"):
        formulas.Sheet({"A1": "=1", "A3": "2"}).seek("A1", 5, "A3")
    with pytest.raises(formulas.FormulaError, match="is not a number"):
        sheet.seek("A2", 500, "A3")
