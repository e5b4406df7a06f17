"""The encoder of BERT in numpy: numbers of word pieces to one vector a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import FloatMatrix

_BATCH_TOKENS = 1024  # of the texts computed together: the values of a layer then stay in the processor's cache
_BLOCK = 1 << 14
_EPSILON = np.float32(1e-12)
# erf(x) = x P(x²) / Q(x²) for |x| < 4, to 1e-7: coefficients of a rational approximation, highest power first.
_ERF_P: tuple[float, ...] = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q: tuple[float, ...] = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)

Array = NDArray[np.float32]
Linear = tuple[Array, Array]  # (n_in, n_out) and (n_out,)


class _Norm(NamedTuple):
    scale: Array
    shift: Array

    def of(self, rows: Array) -> Array:
        """Normalise rows of shape (n, width) in place."""
        rows -= rows.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", rows, rows)[:, None] / np.float32(rows.shape[1])
        rows *= 1 / np.sqrt(variance + _EPSILON)
        rows *= self.scale
        rows += self.shift
        return rows


class _Layer(NamedTuple):
    attention: Linear  # queries, keys and values side by side
    mixed: Linear
    after_attention: _Norm
    wide: Linear
    narrow: Linear
    after: _Norm


class BertEncoder:
    """BERT without training: mean of the last layer over the pieces of a text, of unit length.

    A text has the same bits alone and in any batch: its pieces are multiplied apart from those of other texts, since
    the order in which a product of matrices adds depends on its number of rows on some processors.

    Source: Devlin et al. 2019 (arXiv 1810.04805); mean pooling as in Reimers and Gurevych 2019 (arXiv 1908.10084).
    """

    def __init__(self, weights: Mapping[str, Array], n_heads: int) -> None:
        """Take weights by their names in `BertModel` of transformers; a matrix is (n_out, n_in).

        Raises:
            KeyError: one is missing.
        """
        self._pieces = weights["embeddings.word_embeddings.weight"]
        self._places = (
            weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._first = _norm(weights, "embeddings.LayerNorm")
        self._heads = n_heads
        self._layers: list[_Layer] = []
        while f"{(name := f'encoder.layer.{len(self._layers)}')}.output.dense.weight" in weights:
            own = [_linear(weights, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
            self._layers.append(
                _Layer(
                    (np.concatenate([each[0] for each in own], axis=1), np.concatenate([each[1] for each in own])),
                    _linear(weights, f"{name}.attention.output.dense"),
                    _norm(weights, f"{name}.attention.output.LayerNorm"),
                    _linear(weights, f"{name}.intermediate.dense"),
                    _linear(weights, f"{name}.output.dense"),
                    _norm(weights, f"{name}.output.LayerNorm"),
                )
            )

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return int(self._pieces.shape[1])

    def encode(self, texts: Sequence[Sequence[int]]) -> FloatMatrix:
        """Return (len(texts), dim) float32 rows of unit length for texts of two or more pieces each.

        Raises:
            IndexError: a text is longer than the model has places.
        """
        rows = np.empty((len(texts), self.dim), dtype=np.float32)
        for batch in _batches(texts):
            rows[batch] = self._encode([texts[at] for at in batch])
        return rows

    def _encode(self, texts: list[Sequence[int]]) -> Array:
        """Return the vectors of texts in ascending order of length."""
        groups = [(length, len(list(same))) for length, same in groupby(map(len, texts))]
        places = np.concatenate([np.arange(len(text)) for text in texts])
        state = self._first.of(self._pieces[np.concatenate(texts)] + self._places[places])
        for layer in self._layers:
            attended = self._attention(_product(state, layer.attention, groups), groups)
            mixed = _product(attended, layer.mixed, groups)
            mixed += state
            state = layer.after_attention.of(mixed)
            narrow = _product(_gelu(_product(state, layer.wide, groups)), layer.narrow, groups)
            narrow += state
            state = layer.after.of(narrow)
        means = [part.mean(axis=1) for part in _parts(state, groups)]
        rows = np.concatenate(means)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def _attention(self, given: Array, groups: list[tuple[int, int]]) -> Array:
        """Return (n, width) what each piece takes from the others of its text; given is (n, 3 width)."""
        size = self.dim // self._heads
        found = np.empty((len(given), self.dim), dtype=np.float32)
        for part, out in zip(_parts(given, groups), _parts(found, groups), strict=True):
            shape = (*part.shape[:2], 3, self._heads, size)
            queries, keys, values = part.reshape(shape).transpose(2, 0, 3, 1, 4)
            scores = np.ascontiguousarray(queries) @ np.ascontiguousarray(keys.swapaxes(2, 3))
            scores *= np.float32(size**-0.5)
            scores -= scores.max(axis=3, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=3, keepdims=True)
            out[...] = (scores @ np.ascontiguousarray(values)).swapaxes(1, 2).reshape(out.shape)
        return found


def _batches(texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield positions of texts, the short ones first, with about `_BATCH_TOKENS` pieces at a time."""
    batch: list[int] = []
    n_tokens = 0
    for at in sorted(range(len(texts)), key=lambda place: len(texts[place])):
        if batch and n_tokens + len(texts[at]) > _BATCH_TOKENS:
            yield batch
            batch, n_tokens = [], 0
        batch.append(at)
        n_tokens += len(texts[at])
    if batch:
        yield batch


def _parts(rows: Array, groups: list[tuple[int, int]]) -> Iterator[Array]:
    """Yield views (n_texts, length, width) of the rows of texts of one length after another."""
    start = 0
    for length, n_texts in groups:
        yield rows[start : start + length * n_texts].reshape(n_texts, length, rows.shape[1])
        start += length * n_texts


def _product(rows: Array, linear: Linear, groups: list[tuple[int, int]]) -> Array:
    """Return (n, n_out) rows, one product of matrices for each text."""
    product = np.empty((len(rows), len(linear[1])), dtype=np.float32)
    for part, out in zip(_parts(rows, groups), _parts(product, groups), strict=True):
        np.matmul(part, linear[0], out=out)
    product += linear[1]
    return product


def _gelu(rows: Array) -> Array:
    """Apply x Φ(x) in place, Φ the distribution of the normal distribution; in blocks that the cache holds."""
    flat = rows.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        x = np.clip(block * np.float32(0.5**0.5), -3.925, 3.925)
        squared = x * x
        x *= _polynomial(squared, _ERF_P)
        x /= _polynomial(squared, _ERF_Q)
        x += 1
        x *= np.float32(0.5)
        block *= x
    return rows


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    found = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        found *= x
        found += np.float32(coefficient)
    return found


def _linear(weights: Mapping[str, Array], name: str) -> Linear:
    return np.ascontiguousarray(weights[f"{name}.weight"].T), np.array(weights[f"{name}.bias"])


def _norm(weights: Mapping[str, Array], name: str) -> _Norm:
    return _Norm(np.array(weights[f"{name}.weight"]), np.array(weights[f"{name}.bias"]))
