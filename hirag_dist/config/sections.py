"""Base class of configuration sections, and the sections about reading, extraction, metadata and retrieval."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator, model_validator

from hirag_dist.types.index_info import MAX_FIELDS, check_field_name
from hirag_dist.types.results import MAP_REDUCE

_USER = re.compile(r"(?<=://)[^/?#]*@|\A[^/?#:@]*:[^/?#]*@")
_QUERY_VALUE = re.compile(r"(?<==)[^&#]+")


def public_url(url: str) -> str:
    """Return a URL without the credentials in it: those before the host, and the values of its query.

    >>> public_url("https://me:secret@host/v1?key=abc")
    'https://***@host/v1?key=***'
    """
    address, mark, query = url.partition("?")
    return _USER.sub("***@", address) + mark + _QUERY_VALUE.sub("***", query)


def is_http_url(url: str) -> bool:
    """Return whether requests can be sent to a URL.

    >>> is_http_url("http://localhost:8080/v1"), is_http_url("localhost:8080")
    (True, False)
    """
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


Url = Annotated[str, PlainSerializer(lambda url: public_url(url), return_type=str, when_used="json")]
"""A URL that may hold credentials, which are masked wherever the configuration is shown or recorded."""


class ConfigSection(BaseModel):
    """Known keys that do not change; messages about them leave out what was written, which may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _commented_out(cls, data: Any) -> Any:
        """A section whose keys are all commented out is null in YAML: it means its defaults."""
        if not isinstance(data, dict):
            return data
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        sections = {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, ConfigSection)}
        return {key: value for key, value in data.items() if value is not None or key not in sections}


_ALIASES = {  # what browsers read these names as
    "iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "shift-jis": "cp932", "x-sjis": "cp932",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "big5": "big5hkscs",
    "iso-8859-9": "cp1254", "tis-620": "cp874",
}  # fmt: skip

_PROBE = b"az \n~+-\\u0041.xn--mnchen-3ya.\x1b(B"
"""Bytes that such an encoding reads as ASCII.

UTF-16, UTF-7, encodings that switch by escapes, and codecs of Python that are no charset do not.
"""


def ascii_codec(charset: str) -> str | None:
    """Return the codec of a charset that extends ASCII, as browsers read its name; None for any other name.

    >>> ascii_codec("Shift_JIS"), ascii_codec("windows-1251"), ascii_codec("utf-16")
    ('cp932', 'windows-1251', None)
    """
    name = charset.strip().lower()
    codec = _ALIASES.get(name, name)
    try:
        return codec if _PROBE.decode(codec) == _PROBE.decode() else None
    except (ValueError, LookupError):  # ValueError: the codec "undefined", and a name with a NUL
        return None


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


class ExtractionConfig(ConfigSection):
    """Entities and relations of chunks. `extraction: joint` is short for `extraction: {calls: joint}`."""

    method: Literal["llm", "nlp"] = Field(
        "llm",
        description="llm: the extract model reads every chunk; nlp: rules find names and noun phrases without a call",
    )
    calls: Literal["joint", "two_step"] = Field(
        "joint",
        description="Calls of the extract model for a chunk. joint: one for entities and relations; two_step: the "
        "entity call and the relation call of the paper",
    )

    def content(self) -> str | dict[str, Any]:
        """Return the settings that decide the extracted records under this method, as JSON.

        For `llm` it is the number of calls alone, which is what former versions recorded.
        """
        return self.calls if self.method == "llm" else {"method": self.method}


def long_form(given: Any) -> Any:
    """Return the section that the short form `joint` or `two_step` stands for.

    >>> long_form("two_step")
    {'calls': 'two_step'}
    """
    return {"calls": given} if isinstance(given, str) else given


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


class MapReduceConfig(ConfigSection):
    """Answers in the modes graphrag-global and text-map-reduce, which ask about every part of the corpus."""

    max_calls: int = Field(
        256,
        ge=1,
        description="Maximum calls about parts of the corpus for one question; one that needs more is refused",
    )


class RetrievalConfig(ConfigSection):
    """Defaults of a question (§4.2 of the paper)."""

    mode: Literal["hirag", "local", "global", "bridge", "nobridge", "naive", "flat", "graphrag-local"] = Field(
        "hirag", description="Retrieval mode: the levels that are searched"
    )
    fidelity: Literal["best", "paper"] = Field(
        "best",
        description="best: the retrieval with the best measured results; paper: retrieval exactly as in the HiRAG "
        "paper, where community_level is all unless it is set",
    )
    top_n: int = Field(20, ge=1, le=1000, description="Maximum local entities (Eq. 12)")
    top_m: int = Field(10, ge=1, le=100, description="Maximum key entities of a community (Eq. 14)")
    top_c: int = Field(10, ge=1, le=100, description="Maximum communities (Eq. 13)")
    top_sources: int = Field(10, ge=0, le=100, description="Maximum chunks returned as sources")
    community_level: Annotated[str, BeforeValidator(str)] = Field(
        "leaf",
        pattern=r"^(leaf|all|\d+)$",
        description="Level of the communities. leaf: the deepest community of each entity; all: every level; a number: "
        "that level, 0 the coarsest",
    )
    context_tokens: int = Field(8000, ge=200, description="Maximum tokens of the context that the model reads")
    source_url: str | None = Field(
        None,
        pattern=r"^https?://\S+$",
        description="Address at which the files of INPUT are served, with which links to sources begin",
    )
    map_reduce: MapReduceConfig = MapReduceConfig()

    @field_validator("mode", mode="before")
    @classmethod
    def _no_map_reduce(cls, mode: Any) -> Any:
        if mode in MAP_REDUCE:
            raise ValueError(
                f"Invalid default mode {mode!r}: it calls a model for each part of the corpus, so a question asks for "
                f"it: `query --mode {mode}`, or the mode of a request to a service with service.map_reduce"
            )
        return mode

    @model_validator(mode="before")
    @classmethod
    def _levels_of_the_paper(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("fidelity") == "paper":
            return {"community_level": "all"} | data  # Eq. 13 to the letter
        return data

    @property
    def follows_paper(self) -> bool:
        """Whether deviations from the paper are off."""
        return self.fidelity == "paper"
