"""Configuration section `extraction`: how entities and relations are found in chunks."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hirag_dist.config.base import ConfigSection


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
