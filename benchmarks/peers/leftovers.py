"""Search of a package's files for the text and the names of a removed document.

Sentences and names are looked for that occur in no other document. JSON, GraphML, Parquet and the segments of a ledger
are decoded first; other files are searched as bytes, so that what is compressed there is not found. Case, spaces and
punctuation do not count.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hirag_dist.llm.reply_store.segment import open_segment
from hirag_dist.storage.store import Store

MAX_SENTENCES, MAX_NAMES = 200, 200
_MIN_SENTENCE, _MAX_SENTENCE = 40, 160
_SENTENCE = re.compile(r"[A-Z][^.!?]+[.!?]")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{3,}(?: [A-Z][a-z]{2,})*")
_WORD = re.compile(r"[^\W_]+")


def normalised(text: str) -> str:
    """Return the words of a text in lower case, with one space around each.

    >>> normalised("Mary, the *Queen*")
    ' mary the queen '
    """
    return f" {' '.join(_WORD.findall(text.lower()))} "


def markers(removed: str, others: Sequence[str]) -> dict[str, list[str]]:
    """Return the sentences and the names of a document that no other has, normalised, most of them first.

    Args:
        removed: text of the document.
        others: texts of all other documents.
    """
    rest = "\n".join(map(normalised, others))
    whole = normalised(removed)
    sentences = (
        normalised(found)
        for found in _SENTENCE.findall(" ".join(removed.split()))
        if _MIN_SENTENCE <= len(found) <= _MAX_SENTENCE
    )
    names = sorted({normalised(found) for found in _NAME.findall(removed)}, key=lambda name: (-whole.count(name), name))
    return {
        "sentences": [one for one in dict.fromkeys(sentences) if one not in rest][:MAX_SENTENCES],
        "names": [one for one in names if one not in rest][:MAX_NAMES],
    }


def left_behind(folder: Path, wanted: dict[str, list[str]]) -> dict[str, Any]:
    """Return how many markers of each kind the files below a folder hold, and the number of files that hold any.

    The files are counted by the folder or file of the first level that they are in.
    """
    found: dict[str, set[str]] = {kind: set() for kind in wanted}
    files: Counter[str] = Counter()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        texts = [normalised(text) for text in texts_of(path)]
        text = "\n".join(texts)
        here = {kind: {one for one in each if one in text} for kind, each in wanted.items()}
        if any(here.values()):
            files[path.relative_to(folder).parts[0]] += 1
        for kind, each in here.items():
            found[kind] |= each
    shares = {kind: {"found": len(found[kind]), "of": len(each)} for kind, each in wanted.items()}
    return shares | {"files": dict(files)}


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts in a file."""
    if path.suffix == ".parquet":
        yield from _strings(pq.read_table(path).to_pylist())
    elif path.suffix == ".json":
        try:
            yield from _strings(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:
            yield path.read_text(encoding="utf-8", errors="replace")
    elif path.suffix == ".seg":
        store = Store(str(path.parents[1]))
        for record in open_segment(store, path.name, path.stat().st_size).scan(store, 1 << 20):
            yield str(record)
    else:
        yield html.unescape(path.read_bytes().decode("utf-8", errors="replace"))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
