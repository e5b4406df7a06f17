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
