"""Corpora of any number of tokens: real documents as far as there are any, generated ones beyond.

The documents of a smaller corpus are among those of a larger one, and what follows a corpus in the same order are the
documents that an update adds. JSON lines, some thousand documents a file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from benchmarks.generated_tables import generated_names
from benchmarks.prose import Prose
from hirag_dist.core.text.tokens import encoding

ADDED_SHARE = 0.001
DOCUMENTS_A_FILE = 1000
GENERATED_TOKENS = 4000
GENERATED = "generated"
_NEW_NAMES, _HEAPS = 3.0, 0.75  # of the first mention, and the exponent: names after n mentions are 3 n^0.75
_NAMES_A_DOCUMENT, _SENTENCE_CHARS = 100, 140
_FIRST_GENERATED = 10**9


@dataclass(frozen=True, slots=True)
class Place:
    """A document in a file of texts, and its tokens."""

    key: bytes
    file: int
    offset: int
    tokens: int
    source: str


def write_corpus(folder: Path, texts: Sequence[Path], tokens: int) -> dict[str, Any]:
    """Write `corpus/` of so many tokens and `added/` of a thousandth as many documents; return what is in them.

    Args:
        folder: written to; where `corpus.json` is there, the corpus is made already.
        texts: files of JSON lines with `title`, `text` and maybe `tokens`, which are counted where they are absent; the
            name of a file is that of a source of documents.
    """
    record = folder / "corpus.json"
    if record.exists():
        found: dict[str, Any] = json.loads(record.read_text())
        return found
    for name in ("corpus", "added"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    places = sorted(_places(texts), key=lambda place: place.key)
    ends = np.cumsum([place.tokens for place in places])
    n_real = int(np.searchsorted(ends, tokens, "right"))
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in texts]
        documents = _lines(files, places[:n_real])
        missing = tokens - int(ends[n_real - 1]) if n_real == len(places) else 0
        generated = generated_documents(missing)
        n_generated, generated_tokens = _write(folder / "corpus", documents, generated)
        n_added = max(1, round((n_real + n_generated) * ADDED_SHARE))
        added = _lines(files, places[n_real : n_real + n_added])
        more = generated_documents(GENERATED_TOKENS * (n_added - len(places[n_real : n_real + n_added])), 1)
        _write(folder / "added", added, more, "added-")
    by_package = Counter[str]()
    for place in places[:n_real]:
        by_package[place.source] += place.tokens
    by_package[GENERATED] += generated_tokens
    made = {
        "tokens": sum(by_package.values()),
        "documents": n_real + n_generated,
        "added_documents": n_added,
        "packages": dict(by_package.most_common()),
    }
    record.write_text(json.dumps(made))
    return made


def generated_documents(tokens: int, seed: int = 0) -> Iterator[tuple[str, int]]:
    """Yield JSON lines of generated documents, and their tokens, until there are so many tokens.

    Names go on appearing as Heaps' law has it, and are mentioned again the more the more often they were (a Simon
    process). The rest is text of the sample corpus, cut at chance.
    """
    if tokens <= 0:
        return
    rng, prose, count = np.random.default_rng(seed), Prose(), encoding("o200k_base").encode_ordinary
    n_documents = -(-tokens // GENERATED_TOKENS)
    numbers = _mentions(n_documents * _NAMES_A_DOCUMENT, rng)
    for number in range(n_documents):
        own = numbers[number * _NAMES_A_DOCUMENT : (number + 1) * _NAMES_A_DOCUMENT]
        names = [_name(prose, each, seed) for each in own.tolist()]
        cut = prose.texts(np.full(_NAMES_A_DOCUMENT, _SENTENCE_CHARS), rng).to_pylist()
        text = "\n".join(
            f"{name} is near {other}. {rest}."
            for name, other, rest in zip(names, [*names[1:], names[0]], cut, strict=True)
        )
        n_tokens = len(count(text))
        yield json.dumps({"title": f"Generated {seed} {number}", "text": text, "package": GENERATED}), n_tokens


def _mentions(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return (n,) numbers of names in the order of their mentions."""
    at = np.arange(1, n + 1)
    is_new = rng.random(n) < np.minimum(_NEW_NAMES * _HEAPS * at ** (_HEAPS - 1), 1.0)
    is_new[0] = True
    first = np.cumsum(is_new) - 1
    copied = (rng.random(n) * np.arange(n)).astype(np.int64)  # of an earlier mention: by its frequency so far
    numbers = np.where(is_new, first, -1)
    for row in np.flatnonzero(~is_new).tolist():
        numbers[row] = numbers[copied[row]]
    return numbers


def _name(prose: Prose, number: int, seed: int) -> str:
    rng = np.random.default_rng(number)
    one = np.zeros(1, np.int64)
    found: str = generated_names(prose, one, rng, _FIRST_GENERATED * (1 + seed) + number)[0].as_py()
    return found


def _places(texts: Sequence[Path]) -> Iterator[Place]:
    count = encoding("o200k_base").encode_ordinary
    for number, path in enumerate(texts):
        offset = 0
        with path.open("rb") as file:
            for line in file:
                read = json.loads(line)
                key = hashlib.blake2b(line, digest_size=12).digest()
                tokens = read["tokens"] if "tokens" in read else len(count(read["text"]))
                yield Place(key, number, offset, tokens, path.stem)
                offset += len(line)


def _lines(files: Sequence[Any], places: Sequence[Place]) -> Iterator[str]:
    for place in places:
        files[place.file].seek(place.offset)
        yield files[place.file].readline().decode()


def _write(
    folder: Path, documents: Iterator[str], generated: Iterator[tuple[str, int]], prefix: str = ""
) -> tuple[int, int]:
    """Write documents; return how many of them are generated, and the tokens of these.

    Args:
        prefix: of the names of files: documents in files of equal names would replace each other.
    """
    n_documents = n_generated = n_tokens = 0
    file: TextIO | None = None

    def put(line: str) -> None:
        nonlocal n_documents, file
        if file is None or n_documents % DOCUMENTS_A_FILE == 0:
            if file is not None:
                file.close()
            file = (folder / f"{prefix}{n_documents // DOCUMENTS_A_FILE:05d}.jsonl").open("w", encoding="utf-8")
        file.write(line.rstrip("\n") + "\n")
        n_documents += 1

    for line in documents:
        put(line)
    for line, tokens in generated:
        put(line)
        n_generated, n_tokens = n_generated + 1, n_tokens + tokens
    if file is not None:
        file.close()
    return n_generated, n_tokens
