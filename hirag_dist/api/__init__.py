"""Implementation of the public Python API: configurations as its functions accept them. Import from `hirag_dist`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from hirag_dist.config import loader
from hirag_dist.config.model import Config

ConfigLike: TypeAlias = Config | str | Path | Mapping[str, Any] | None


def load_config(path: str | Path | None = None, **overrides: Any) -> Config:
    """Return the effective configuration of a YAML file, the environment and overrides.

    Args:
        path: a YAML file; None for the defaults.
        overrides: sections and keys, as in `load_config("hirag.yaml", retrieval={"top_n": 30})`; they take precedence.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, or a value is out of bounds.
    """
    file = None if path is None else str(path)
    return loader.load_config(file, os.environ, dict(_leaves(overrides)), "the arguments").config


def as_config(config: ConfigLike) -> Config:
    """Return the effective configuration.

    Args:
        config: a `Config`, which is used as it is; the path of a YAML file; a mapping of keys to values, nested or
            dotted ("retrieval.top_n"); or None for the defaults. Environment variables HIRAG__SECTION__KEY override
            a file and the defaults; a mapping overrides both.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, or a value is out of bounds.
    """
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return loader.load_config(None, os.environ, dict(_leaves(config)), "the configuration").config
    return load_config(config)


_WHOLE = "llm.endpoints"  # endpoint names and their `extra_body` may hold dots


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return (dotted key, value) of a nested mapping."""
    leaves: list[tuple[str, Any]] = []
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and dotted != _WHOLE:
            leaves += _leaves(value, f"{dotted}.")
        else:
            leaves.append((dotted, value))
    return leaves
