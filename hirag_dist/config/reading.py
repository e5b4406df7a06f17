"""Configuration section `reading`: fields of records, and what of an input is followed."""

from __future__ import annotations

from pydantic import Field

from hirag_dist.config.base import ConfigSection


class ReadingConfig(ConfigSection):
    """Fields of JSON, CSV and Parquet records, links, and limits of what one file may hold.

    A field that is null is looked for under its usual names. What passes a limit is a dead letter.
    """

    text_field: str | None = Field(None, description="text of a record")
    title_field: str | None = Field(None, description="title of a record")
    label_field: str | None = Field(None, description="labels of a record; what has no such field is refused")
    id_field: str | None = Field(None, description="the owner's id of a record, by which evaluations know evidence")
    follow_links: bool = Field(
        False, description="follow links that lead out of the folders of INPUT; else each one is a dead letter"
    )
    max_document_bytes: int = Field(
        1 << 25, ge=1, description="limit of the text of a document, and of a record of JSON Lines or CSV"
    )
    max_file_bytes: int = Field(1 << 28, ge=1, description="limit of the content of a file that is read as a whole")
    max_records: int = Field(1_000_000, ge=1, description="limit of the records of a file")
    max_pages: int = Field(10_000, ge=1, description="limit of the pages of a PDF")
    max_expansion: int = Field(
        250, ge=1, description="limit of how many times the content may be larger than the file, above 64 MiB"
    )
    pdf_memory_bytes: int = Field(1 << 30, ge=1 << 20, description="limit of the memory that one PDF may take (Linux)")
    pdf_cpu_s: int = Field(300, ge=1, description="limit of the processor seconds that one PDF may take")
    office_memory_bytes: int = Field(
        1 << 30,
        ge=1 << 20,
        description="limit of the memory that an office file, book, mail or row group of Parquet may take (Linux)",
    )
    office_cpu_s: int = Field(300, ge=1, description="limit of the processor seconds that one of these may take")
