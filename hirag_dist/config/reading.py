"""Configuration section `reading`: fields of records, the encoding, and limits of what one file may hold."""

from __future__ import annotations

from pydantic import Field, field_validator

from hirag_dist.config.base import ConfigSection
from hirag_dist.config.charsets import ascii_codec


class ReadingConfig(ConfigSection):
    """Fields of JSON, CSV and Parquet records, the encoding, links, and limits of one file.

    A field that is null is looked for under its usual names. A file that passes a limit is a dead letter.
    """

    text_field: str | None = Field(None, description="Name of the field with the text of a record")
    title_field: str | None = Field(None, description="Name of the field with the title of a record")
    label_field: str | None = Field(
        None, description="Name of the field with the access labels of a record; a record without it is refused"
    )
    id_field: str | None = Field(
        None, description="Name of the field with the owner's id of a record, by which evaluations know evidence"
    )
    encoding: str | None = Field(
        None,
        description="Character encoding of files and records that are not UTF-8 and declare none, such as "
        "windows-1251; null: it is guessed",
    )
    follow_links: bool = Field(
        False, description="Follow links that lead out of the folders of INPUT; false: such a link is a dead letter"
    )
    max_file_bytes: int = Field(1 << 28, ge=1, description="Maximum bytes of a file that is read as a whole")
    memory_bytes: int = Field(
        1 << 30,
        ge=1 << 20,
        description="Maximum bytes of memory for reading a PDF, office file, book, mail or row group (Linux)",
    )

    @field_validator("encoding")
    @classmethod
    def _extends_ascii(cls, encoding: str | None) -> str | None:
        if encoding is not None and ascii_codec(encoding) is None:
            raise ValueError(
                f"Invalid encoding {encoding!r} (option --encoding): Expected the name of a character encoding that "
                "extends ASCII, such as windows-1251 or shift_jis; save files in any other as UTF-8"
            )
        return encoding
