"""Base class of configuration sections."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


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
