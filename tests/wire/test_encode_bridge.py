"""Key entities and paths as bytes, against the messages that protobuf fills and against Python's own decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.retrieval.view.visibility import FilteredTextColumns
from hirag_dist.storage.serving.text_columns import BATCH_ROWS, TextColumns, text_schema, write_texts
from hirag_dist.types import EntityItem, PathItem, Retrieval
from hirag_dist.types.mapped_bridge import MappedBridge, MappedTexts
from hirag_dist.wire import encode_bridge
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_results import retrieval_to_proto
from hirag_dist.wire.encode_bridge import bridge_fields, compile_encoder, retrieve_response

NAMES = ("entity_id", "name", "type", "description")
SCHEMA = text_schema(NAMES, wide=["description"])
Row = tuple[str, str, str, str]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def mapped(folder: Path, rows: Sequence[Row]) -> MappedTexts:
    return columns_of(folder, rows).mapped(NAMES, np.zeros(0, np.int64))[0]


def columns_of(folder: Path, rows: Sequence[Row]) -> TextColumns:
    path = folder / "entities.arrow"
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
    with path.open("wb") as file:
        write_texts(file, SCHEMA, [pa.record_batch(columns, schema=SCHEMA)])
    return TextColumns(path)


def bridge(
    texts: MappedTexts, layers: Sequence[int], keys: Sequence[int], scores: Sequence[float], paths: Sequence[list[int]]
) -> MappedBridge:
    ends = np.cumsum([len(path) for path in paths], dtype=np.int64)
    nodes = np.array([row for path in paths for row in path], np.int64)
    of_keys = np.array([layers[key] for key in keys], np.int32)
    return MappedBridge(texts, of_keys, np.array(keys, np.int64), np.array(scores, np.float64), ends, nodes)


def by_protobuf(
    rows: Sequence[Row], layers: Sequence[int], keys: Sequence[int], scores: Sequence[float], paths: Sequence[list[int]]
) -> bytes:
    entities = tuple(EntityItem(*rows[key], layers[key], score) for key, score in zip(keys, scores, strict=True))
    ways = [
        PathItem(rows[a][0], rows[b][0], tuple(rows[at][0] for at in path), tuple(rows[at][1] for at in path))
        for a, b, path in zip(keys, keys[1:], paths, strict=False)
    ]
    filled = retrieval_to_proto(Retrieval("", "hirag", "", key_entities=entities, paths=tuple(ways)))
    alone = pb.Retrieval(key_entities=filled.key_entities, paths=filled.paths)
    return alone.SerializeToString()


@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), min_size=1, max_size=6),
    layers=st.lists(st.integers(0, 2**31 - 1), min_size=6, max_size=6),
    scores=st.lists(st.floats(width=64), min_size=4, max_size=4),
    data=st.data(),
)
def test_bytes_are_those_of_protobuf(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Row],
    layers: list[int],
    scores: list[float],
    data: st.DataObject,
) -> None:
    row = st.integers(0, len(rows) - 1)
    keys = data.draw(st.lists(row, max_size=4))
    paths = [data.draw(st.lists(row, max_size=5)) for _ in keys[1:]]
    texts = mapped(tmp_path_factory.mktemp("texts"), rows)
    given_ = layers, keys, scores[: len(keys)], paths
    assert bridge_fields(bridge(texts, *given_)) == by_protobuf(rows, *given_)


@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), min_size=1, max_size=6),
    others=st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=6, max_size=6),
    data=st.data(),
)
def test_texts_of_partially_visible_rows_are_replaced(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], others: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    row = st.integers(0, len(rows) - 1)
    partial = data.draw(st.sets(row))
    keys = data.draw(st.lists(row, max_size=4))
    paths = [data.draw(st.lists(row, max_size=5)) for _ in keys[1:]]
    seen = [(own[0], *others[at]) if at in partial else own for at, own in enumerate(rows)]
    columns = FilteredTextColumns(
        columns_of(tmp_path_factory.mktemp("texts"), rows),
        lambda asked: np.isin(asked, sorted(partial)),
        lambda asked: [dict(zip(NAMES[1:], others[at], strict=True)) for at in asked.tolist()],
    )
    stored = bridge(columns.mapped(NAMES, np.zeros(0, np.int64))[0], [7] * len(rows), keys, [0.5] * len(keys), paths)
    texts, numbered = columns.mapped(NAMES, np.concatenate([stored.keys, stored.nodes]))
    own = replace(stored, texts=texts, keys=numbered[: len(keys)], nodes=numbered[len(keys) :])
    assert bridge_fields(own) == by_protobuf(seen, [7] * len(rows), keys, [0.5] * len(keys), paths)


def test_the_first_reply_compiles_nothing(tmp_path: Path) -> None:
    compile_encoder()
    before = len(encode_bridge._encode.signatures)
    rows = [("id", "name", "type", "text")] * 3
    columns = FilteredTextColumns(
        columns_of(tmp_path, rows), lambda asked: asked == 1, lambda asked: [dict.fromkeys(NAMES[1:], "x")] * len(asked)
    )
    texts, numbered = columns.mapped(NAMES, np.array([0, 1, 2]))
    assert bridge_fields(bridge(mapped(tmp_path, rows), [0] * 3, [0, 2], [1.0, 0.5], [[0, 1, 2]]))
    assert bridge_fields(replace(bridge(texts, [0] * 3, [0, 1, 2], [1.0] * 3, [[], []]), keys=numbered))
    assert len(encode_bridge._encode.signatures) == before


def test_rows_of_several_batches_and_long_texts(tmp_path: Path) -> None:
    """Offsets of 32 and 64 bits, a batch that is not the first, lengths of one to four bytes, more than was guessed."""
    rows = [(f"id{at}", f"näme {at}", "", f"{at} " * (at % 7)) for at in range(BATCH_ROWS + 5)]
    last = len(rows) - 1
    rows[last] = ("end", "n" * 20_000, "t" * 128, "ü" * 1_200_000)
    given_ = [0] * last + [3], [last, 1, BATCH_ROWS, 0], [0.5, -1.0, 0.0, 1e300], [[last, 7, 1], [], [BATCH_ROWS, 0]]
    expected = by_protobuf(rows, *given_)
    assert len(expected) > 2_400_000
    assert bridge_fields(bridge(mapped(tmp_path, rows), *given_)) == expected


@given(
    raw=st.one_of(
        st.binary(max_size=6),
        st.lists(st.sampled_from(b"\x00A\x80\x9f\xa0\xbf\xc1\xc2\xe0\xed\xf0\xf4\xff")).map(bytes),
    )
)
def test_what_is_no_utf8_is_refused(raw: bytes) -> None:
    """The bytes are accepted if Python decodes them: no surrogates, no overlong forms, nothing cut off."""
    offsets = np.array([0, len(raw)], "<i4").view(np.uint8)
    texts = MappedTexts(
        np.concatenate([offsets, np.frombuffer(raw, np.uint8)]),
        np.array([[[0, 8]]] * 4, np.int64),
        np.full(4, 4, np.int64),
        BATCH_ROWS,
        np.zeros(0, np.uint8),
        np.zeros((0, 4, 2), np.int64),
    )
    found = bridge_fields(bridge(texts, [0], [0], [1.0], []))
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        assert found is None
    else:
        assert found == by_protobuf([(text,) * 4], [0], [0], [1.0], [])


def test_fields_follow_the_others_in_the_response(tmp_path: Path) -> None:
    rows: list[Row] = [("a", "A", "person", "first"), ("b", "B", "place", "second")]
    given_ = [0, 1], [0, 1], [0.25, 0.5], [[0, 1]]
    fields = bridge_fields(bridge(mapped(tmp_path, rows), *given_))
    assert fields is not None
    plain = pb.Retrieval(question="q" * 300, context="c")
    read = pb.RetrieveResponse.FromString(retrieve_response(plain, fields)).retrieval
    assert (read.question, read.context) == ("q" * 300, "c")
    assert [entity.entity_id for entity in read.key_entities] == ["a", "b"]
    assert list(read.paths[0].entity_names) == ["A", "B"]
