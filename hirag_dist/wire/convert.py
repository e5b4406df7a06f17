"""Queries, look-ups, retrievals, answers and descriptions of indexes as protobuf messages, and back. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from hirag_dist.errors import InvalidQuery
from hirag_dist.types import AccessScope, Answer, Query, Retrieval
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.records import MODE_NAMES, MODES, enum_names, message_fields, message_of, record_of

M = TypeVar("M")
_MAX_KEY_CHARACTERS = 1000  # of an id or a name
QUERY_FIELDS = frozenset(pb.Query.DESCRIPTOR.fields_by_name)
LOOKUP_FIELDS = frozenset(
    name
    for request in (pb.GetEntityRequest, pb.FindPathRequest, pb.GetCommunityRequest, pb.GetDocumentRequest)
    for name in request.DESCRIPTOR.fields_by_name
)

# Least values, which are those of the keys of the section `retrieval`.
_LEAST = {"top_n": 1, "top_m": 1, "top_c": 1, "context_tokens": 200}
_INT32_MAX = 2**31 - 1
MAX_QUESTION_CHARACTERS = 32_768  # embedding a longer question would delay the other requests
_MAX_LABELS = 64
_MAX_LABEL_CHARACTERS = 1024
_MAX_LEVEL_CHARACTERS = 64
_MAX_FILTER_CHARACTERS = 16_384
_MAX_DATE_CHARACTERS = 64
_NOT_FINITE = "vector must hold finite numbers only"


def query_from_proto(message: pb.Query, dim: int) -> Query:
    """Return the query of a request. Sizes are checked before anything is copied.

    Args:
        dim: dimensions of the index's vectors.

    Raises:
        InvalidQuery: the question is blank, the mode unknown, a count below 1, the vector not finite or of another
            length, a label, the level or the filter too long, or the labels too many. The message begins with the
            field's name.
    """
    import numpy as np  # not at the top: clients import this module too, and have no numpy

    if message.vector and len(message.vector) != dim:
        raise InvalidQuery(f"vector: {len(message.vector)} numbers; this index has {dim} dimensions")
    scope = scope_from_proto(message)
    if len(message.community_level) > _MAX_LEVEL_CHARACTERS:
        raise InvalidQuery("community_level must be leaf, all, or a level's number")
    mode = MODE_NAMES.get(message.mode)
    if mode is None and message.mode != pb.MODE_UNSPECIFIED:
        raise InvalidQuery(f"mode must be one of {', '.join(MODES)}; the number {message.mode} is none of them")
    vector = np.array(message.vector, dtype=np.float32) if message.vector else None
    if vector is not None and not np.isfinite(vector).all():
        raise InvalidQuery(_NOT_FINITE)
    given = {name: getattr(message, name) for name in (*_LEAST, "community_level") if message.HasField(name)}
    query = Query(
        message.question, mode, vector=vector, labels=scope.labels, filter=scope.filter, as_of=scope.as_of, **given
    )
    _check(query)
    return query


def scope_from_proto(message: Any, reach: frozenset[str] | None = None) -> AccessScope:
    """Return the part of the index that a query or a look-up's request asks for.

    Args:
        reach: the labels that the caller holds; None: everything may be seen.

    Raises:
        InvalidQuery: a label or the filter is too long, or the labels are too many.
    """
    if len(message.labels) > _MAX_LABELS:
        raise InvalidQuery(f"labels must be at most {_MAX_LABELS}, got {len(message.labels)}")
    if any(len(label) > _MAX_LABEL_CHARACTERS for label in message.labels):
        raise InvalidQuery(f"labels must have at most {_MAX_LABEL_CHARACTERS} characters each")
    if len(message.filter) > _MAX_FILTER_CHARACTERS:
        raise InvalidQuery(f"filter must have at most {_MAX_FILTER_CHARACTERS} characters, got {len(message.filter)}")
    if len(message.as_of) > _MAX_DATE_CHARACTERS:
        raise InvalidQuery("as_of must be a date or time in ISO 8601")
    return AccessScope(tuple(message.labels), message.filter, message.as_of, reach)


def query_to_proto(query: Query) -> pb.Query:
    """Return the message for a query; an empty vector counts as none.

    Raises:
        InvalidQuery: as `query_from_proto`, and a text that is not valid Unicode or a count that is too large.
    """
    if query.mode is not None and query.mode not in MODES:
        raise InvalidQuery(f"mode must be one of {', '.join(MODES)}, got {query.mode!r}")
    _check(query)
    vector = None if query.vector is None else _numbers(query.vector)
    try:
        mode = pb.MODE_UNSPECIFIED if query.mode is None else MODES[query.mode]
        return pb.Query(**message_fields(query, pb.Query, without="mode") | {"mode": mode, "vector": vector})
    except UnicodeEncodeError as error:
        raise InvalidQuery("texts of a query must be valid Unicode without lone surrogates") from error


def _check(query: Query) -> None:
    if not query.question.strip():
        raise InvalidQuery("question must not be blank")
    for name, least in _LEAST.items():
        value = getattr(query, name)
        if value is not None and not least <= value <= _INT32_MAX:
            bound = f"at least {least}" if value < least else f"at most {_INT32_MAX}"
            raise InvalidQuery(f"{name} must be {bound}, got {value}")


def _numbers(vector: Any) -> list[float]:
    """Return the numbers of a sequence or an array of any shape.

    Raises:
        InvalidQuery: something in it is no finite number.
    """
    rows = vector.tolist() if hasattr(vector, "tolist") else list(vector)
    while rows and isinstance(rows[0], list | tuple):
        rows = list(chain.from_iterable(rows))
    try:
        finite = all(map(math.isfinite, rows))
    except (TypeError, OverflowError) as error:
        raise InvalidQuery(_NOT_FINITE) from error
    if not finite:
        raise InvalidQuery(_NOT_FINITE)
    return [float(number) for number in rows]


def lookup_request(kind: Callable[..., M], **values: Any) -> M:
    """Return the request of a look-up, a message of a class with these fields.

    Raises:
        InvalidQuery: a text is not valid Unicode, or a number is too large.
    """
    try:
        return kind(**values)
    except UnicodeEncodeError as error:
        raise InvalidQuery("texts of a look-up must be valid Unicode without lone surrogates") from error
    except ValueError as error:
        raise InvalidQuery(f"a number of the look-up is out of range: {error}") from error


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


LEVELS = enum_names(pb.Level, "LEVEL_")

_LEVEL_NAMES: Mapping[int, str] = {number: name for name, number in LEVELS.items()}


def level_from_proto(level: int) -> str:
    """Return a level's name; "level 9" for one that a later server sends."""
    return _LEVEL_NAMES.get(level, f"level {level}")


def retrieval_fields(
    retrieval: Retrieval, *, omit_context: bool = False, omit_source_text: bool = False
) -> dict[str, Any]:
    """Return the fields of a retrieval's message, without the rendered context or the chunks' text where asked."""
    found = message_fields(retrieval, pb.Retrieval)
    if omit_context:
        found["context"] = ""
    if omit_source_text:
        for source in found["sources"]:
            source["text"] = ""
    return found


def answer_to_proto(answer: Answer, retrieval: Mapping[str, Any] | None = None) -> pb.FinalAnswer:
    """Return the message that ends an answer.

    Args:
        retrieval: fields of the answer's retrieval, if it is not the one that the stream has already sent.
    """
    return message_of(
        pb.FinalAnswer, **message_fields(answer, pb.FinalAnswer, without="retrieval"), retrieval=retrieval
    )


def answer_from_proto(message: pb.FinalAnswer, retrieval: Retrieval) -> Answer:
    """Return the answer of a message; `retrieval` comes from the stream, unless the message has another."""
    answer = record_of(Answer, message)
    return answer if message.HasField("retrieval") else replace(answer, retrieval=retrieval)
