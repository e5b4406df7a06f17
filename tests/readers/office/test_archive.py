"""Archives that must not be unpacked."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.archive import check_xml, open_archive, read_part
from tests.readers.office import makers


def test_a_bomb_is_refused_by_what_it_declares() -> None:
    data = makers.archive({"word/document.xml": b"x" * 1_000_000})
    assert len(data) < 2000
    with pytest.raises(FileRefused, match="larger than 999999 bytes"):
        open_archive(data, 999_999)


def test_a_bomb_that_declares_little_is_damaged() -> None:
    data = makers.archive({"word/document.xml": b"x" * 1_000_000})
    small = data.replace(struct.pack("<L", 1_000_000), struct.pack("<L", 10))
    opened = open_archive(small, 1000)
    with pytest.raises(FileRefused, match="damaged"):
        read_part(opened, "word/document.xml")


def test_encrypted_files() -> None:
    with pytest.raises(FileRefused, match="encrypted, or in the binary format"):
        open_archive(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 99, 1000)
    data = bytearray(makers.archive({"a": "x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(FileRefused, match="remove its password"):
        open_archive(bytes(data), 1000)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_declarations_of_entities(encoding: str) -> None:
    bomb = '<?xml version="1.0"?><!-- ' + "x" * 99 + ' --><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    file = zipfile.ZipFile(io.BytesIO(makers.archive({"xl/workbook.xml": bomb.encode(encoding)})))
    with pytest.raises(FileRefused, match="document type declaration"):
        check_xml(file)
