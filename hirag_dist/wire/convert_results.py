"""Retrievals, answers and descriptions of indexes as protobuf messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hirag_dist.types import Answer, IndexEntry, IndexInfo, Retrieval
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.records import enum_names, message_fields, message_of, record_of

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


def retrieval_from_proto(message: pb.Retrieval) -> Retrieval:
    """Return the retrieval of a message; texts that were left out are empty."""
    return record_of(Retrieval, message)


def answer_to_proto(answer: Answer, retrieval: Mapping[str, Any] | None = None) -> pb.FinalAnswer:
    """Return the message that ends an answer.

    Args:
        answer: the engine's answer.
        retrieval: fields of the answer's retrieval, if it is not the one that the stream has already sent.
    """
    return message_of(
        pb.FinalAnswer, **message_fields(answer, pb.FinalAnswer, without="retrieval"), retrieval=retrieval
    )


def answer_from_proto(message: pb.FinalAnswer, retrieval: Retrieval) -> Answer:
    """Return the answer of a message; `retrieval` comes from the stream, unless the message has another."""
    answer = record_of(Answer, message)
    return answer if message.HasField("retrieval") else replace(answer, retrieval=retrieval)


def info_to_proto(info: IndexInfo) -> pb.IndexInfo:
    """Return the message for a snapshot's description.

    Raises:
        TypeError: a layer holds a value that is no number, text or boolean.
    """
    return message_of(pb.IndexInfo, **message_fields(info, pb.IndexInfo))


def info_from_proto(message: pb.IndexInfo) -> IndexInfo:
    """Return the description of a snapshot."""
    return record_of(IndexInfo, message)


def entry_from_proto(message: pb.IndexEntry) -> IndexEntry:
    """Return an entry of the list of indexes."""
    return record_of(IndexEntry, message)
