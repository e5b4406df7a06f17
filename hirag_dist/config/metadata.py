"""Configuration section `metadata`: fields of documents, by which questions are filtered."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hirag_dist.config.base import ConfigSection
from hirag_dist.types.metadata import MAX_FIELDS, check_field_name


class MetadataFieldConfig(ConfigSection):
    """A field: its type, and where its value comes from. `NAME: date` is short for `NAME: {type: date}`."""

    type: Literal["string", "number", "date", "bool"] = Field("string", description="Type of the values")
    list: bool = Field(False, description="Allow several values for a document")
    keys: tuple[str, ...] = Field(
        (),
        description="Names of the field in records, front matter, and the properties of HTML and PDF, in any case; the "
        "first one with a value counts. Empty: the name of the field",
    )
    separator: str = Field(
        "", description="Separator of the values of a list in one text, such as a comma; a JSON list needs none"
    )
    path: str | None = Field(
        None,
        description="Regular expression that is searched in the path of a file, where no key has a value; its first "
        "group is the value",
    )

    @field_validator("path")
    @classmethod
    def _expression(cls, path: str | None) -> str | None:
        try:
            re.compile(path or "")
        except re.error as error:
            raise ValueError(f"Invalid path: not a regular expression: {error}") from None
        return path

    @model_validator(mode="after")
    def _usable(self) -> MetadataFieldConfig:
        if self.separator and not self.list:
            raise ValueError("Invalid separator: needs list: true")
        return self


def _long_form(given: Any) -> Any:
    return {"type": given} if isinstance(given, str) else given


class MetadataConfig(ConfigSection):
    """Metadata of documents, kept in the index for filters. What is declared here changes no text and costs no call."""

    fields: dict[str, Annotated[MetadataFieldConfig, BeforeValidator(_long_form)]] = Field(
        default_factory=dict, max_length=MAX_FIELDS, description="Declared fields by name"
    )
    as_of_field: str | None = Field(
        None,
        description="Name of the date field that `as_of` of a question limits; later documents are not searched",
    )

    @model_validator(mode="after")
    def _known(self) -> MetadataConfig:
        for name in self.fields:
            check_field_name(name)
        if self.as_of_field is not None:
            field = self.fields.get(self.as_of_field)
            if field is None or field.type != "date" or field.list:
                raise ValueError(f"Invalid as_of_field: {self.as_of_field!r} is not a declared field of type date")
        return self
