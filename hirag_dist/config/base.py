"""Base class of configuration sections."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, model_validator

_USER = re.compile(r"(?<=://)[^/?#]*@|\A[^/?#:@]*:[^/?#]*@")
_QUERY_VALUE = re.compile(r"(?<==)[^&#]+")


def public_url(url: str) -> str:
    """Return a URL without the credentials in it: those before the host, and the values of its query.

    >>> public_url("https://me:secret@host/v1?key=abc")
    'https://***@host/v1?key=***'
    """
    address, mark, query = url.partition("?")
    return _USER.sub("***@", address) + mark + _QUERY_VALUE.sub("***", query)


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
        sections = {name for name, field in cls.model_fields.items() if _is_section(field.annotation)}
        return {key: value for key, value in data.items() if value is not None or key not in sections}


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ConfigSection)
