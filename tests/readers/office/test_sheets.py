from __future__ import annotations

import openpyxl
import pytest

from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office import sheets
from tests.readers.office import makers


def test_values_by_sheet_and_row() -> None:
    found = sheets.read_sheets(makers.sheets(), 10_000)
    assert found.text() == (
        "## Prices\n\nPrices of parts\n\n| part | price | since | share |\n| --- | --- | --- | --- |\n"
        "| lens | 12.5 | 2024-05-01 | 25% |\n| wick | 3 | 2024-05-02 08:30:00 | TRUE |"
    )
    text = found.text()
    rows = {place["row"]: text[place["start"] : place["end"]].split()[1] for place in found.places() if place["row"]}
    assert rows == {1: "of", 3: "part", 4: "lens", 5: "wick"}
    assert {place["section"] for place in found.places()} == {"Prices"}


def test_the_header_of_a_long_table_is_repeated() -> None:
    workbook = openpyxl.Workbook()
    workbook.active.append(["part", "price"])
    for row in range(400):
        workbook.active.append([f"part {row}", row])
    text = sheets.read_sheets(makers.saved(workbook), 100_000).text()
    assert text.count("| part | price |") == 5
    assert max(map(len, text.split("\n\n"))) < 1700


def test_a_limit_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "MAX_CELLS", 5)
    with pytest.raises(FileRefused, match="more than 5 cells"):
        sheets.read_sheets(makers.sheets(), 10_000)
