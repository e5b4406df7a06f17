"""Requests of look-ups, made and read. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hirag_dist.errors import InvalidQuery
from hirag_dist.types import AccessScope
from hirag_dist.wire.convert_query import scope_fields

M = TypeVar("M")
_MAX_KEY_CHARACTERS = 1000  # of an id or a name


def lookup_request(kind: Callable[..., M], **values: Any) -> M:
    """Return the request of a look-up.

    Args:
        kind: class of the message.
        values: its fields.

    Raises:
        InvalidQuery: a text is not valid Unicode, or a number is too large.
    """
    try:
        return kind(**values)
    except UnicodeEncodeError as error:
        raise InvalidQuery("texts of a look-up must be valid Unicode without lone surrogates") from error
    except ValueError as error:
        raise InvalidQuery(f"a number of the look-up is out of range: {error}") from error


def scope_from_proto(message: Any, reach: frozenset[str] | None) -> AccessScope:
    """Return the scope of a look-up's request.

    Args:
        message: the request.
        reach: the labels that the caller holds; None: everything may be seen.

    Raises:
        InvalidQuery: as `scope_fields`.
    """
    return AccessScope(**scope_fields(message), reach=reach)


def key_from_proto(message: Any, name: str) -> str:
    """Return the id or name in a field of a request.

    Raises:
        InvalidQuery: it is blank or too long.
    """
    key: str = getattr(message, name)
    if not key.strip():
        raise InvalidQuery(f"{name} must not be blank")
    if len(key) > _MAX_KEY_CHARACTERS:
        raise InvalidQuery(f"{name} must have at most {_MAX_KEY_CHARACTERS} characters, got {len(key)}")
    return key
