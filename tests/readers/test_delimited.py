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


def test_columns_by_option(read: Read) -> None:
    data = "a,b,c\none,two,three\n"
    (found,) = read("d.csv", data, text_field="b", title_field="a", label_field="c")
    assert (found.title, found.text, found.labels) == ("one", "two", ("three",))
    assert "no column 'z' with the labels" in read("d.csv", data, text_field="b", label_field="z")[0].reason
    assert "no field 'z'" in read("d.csv", data, text_field="z")[0].reason
