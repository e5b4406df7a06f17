from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Read = Callable[..., list[Any]]


def texts(found: list[Any]) -> list[str]:
    return [getattr(each, "text", "-") for each in found]


def test_quotes_line_ends_and_titles(read: Read) -> None:
    data = '\ufefftitle, Text ,labels\r\nT,"a, ""b""\r\nc",hr\r\n,d,"[""x"", ""y""]"\r\n\r\n'
    found = read("d.csv", data)
    assert [(each.record, each.title, each.text, each.labels) for each in found] == [
        (0, "T", 'a, "b"\nc', ("hr",)),
        (1, "d", "d", ("x", "y")),
    ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("d.tsv", "id\ttext\n1\ta, b\n"),
        ("d.csv", "id;text\n1;a, b\n"),
        ("d.csv", "id|text\n1|a, b\n"),
        ("d.tab", "id\ttext\n1\ta, b\n"),
    ],
)
def test_delimiters(read: Read, name: str, data: str) -> None:
    assert texts(read(name, data)) == ["a, b"]


def test_bad_rows_cost_themselves_only(read: Read) -> None:
    found = read("d.csv", 'id,text\n1,one\n2\n3,"three\n4,four\n5,a,b\n6,six,\n')
    assert texts(found) == ["one", "-", "-", "four", "-", "six"]
    assert [each.reason for each in found if not hasattr(each, "text")] == [
        "the text is empty",
        "a quote is opened and never closed",
        "the row has 3 fields, the header 2: quote fields that hold the delimiter",
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "the file is empty"),
        ("\n \n", "the file is empty"),
        ("text\n", "the file holds no records"),
        ("0,1\n2,3\n", "there is: 0, 1; name it in reading.text_field (--text-field)"),
        ('"never closed\n', "a quote is opened and never closed"),
    ],
)
def test_tables_without_documents(read: Read, data: str, reason: str) -> None:
    (found,) = read("d.csv", data)
    assert reason in found.reason


@pytest.mark.parametrize(
    "data",
    [
        "1,2.5,2024-01-31\n2,3.5,2024-02-01\n",
        "17;The keeper lit the lamp at dusk.;;\n18;The boat came back in the morning.;;\n",
        "1\thttps://example.org/a\t-3,5 %\ttrue\n",
        "31/01/2024 10:15,12:30,ann@example.org\n",
    ],
)
@pytest.mark.parametrize("field", [None, "text"])
def test_a_table_without_a_header_is_told_to_get_one(read: Read, data: str, field: str | None) -> None:
    (found,) = read("d.csv", data, text_field=field)
    assert "put a line above it that names the columns" in found.reason


@pytest.mark.parametrize(
    "data", ["name,year\nAda,1815\n", "id,2019,2020\na,1,2\n", "Ada,Bob\nCleo,Dan\n", ",,x\n1,2,3\n"]
)
def test_a_header_without_a_text_is_still_a_header(read: Read, data: str) -> None:
    (found,) = read("d.csv", data)
    assert "no field named" in found.reason
    assert "put a line above" not in found.reason


def test_columns_by_option(read: Read) -> None:
    data = "a,b,c\none,two,three\n"
    (found,) = read("d.csv", data, text_field="b", title_field="a", label_field="c")
    assert (found.title, found.text, found.labels) == ("one", "two", ("three",))
    assert "no column 'z' with the labels" in read("d.csv", data, text_field="b", label_field="z")[0].reason
    assert "no field 'z'" in read("d.csv", data, text_field="z")[0].reason
