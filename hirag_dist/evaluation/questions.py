"""Question files: JSON Lines, JSON, CSV or Parquet → questions with their gold answers and evidence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hirag_dist.core.text.normalize import one_line
from hirag_dist.errors import InputError
from hirag_dist.readers import Row, Unreadable, clean_text, find_inputs, read_rows
from hirag_dist.readers.document_builder import find_field

USUAL: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "query", "text", "input"),
    "id": ("question_id", "query_id", "qid", "id", "_id"),
    "type": ("type", "question_type", "category"),
    "answer": ("answer", "gold_answer", "expected_answer", "ground_truth"),
    "aliases": ("answers", "answer_aliases", "aliases"),  # all that there are
    "gold": (
        "gold_passage_ids",
        "gold_doc_ids",
        "gold_document_ids",
        "gold_ids",
        "gold",
        "evidence_doc_ids",
        "evidence_ids",
        "evidence",
        "relevant_ids",
        "supporting_ids",
    ),
    "answerable": ("answerable",),
}
_FALSE = ("false", "no", "0")


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a file.

    Attributes:
        id: as the file has it, else `#` and its number.
        type: as the file has it, "" for none.
        answers: gold answers: the answer or answers, then the aliases, each once; empty where the file has none.
        gold: ids of the records that hold the evidence, as the file has them; empty where it names none.
        answerable: what the file says; None where it says nothing.
    """

    id: str
    text: str
    type: str = ""
    answers: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    answerable: bool | None = None


@dataclass(frozen=True, slots=True)
class QuestionFields:
    """Names of fields; None takes the first usual one (`USUAL`) that a record has, in any case."""

    question: str | None = None
    id: str | None = None
    type: str | None = None
    answer: str | None = None
    aliases: str | None = None
    gold: str | None = None
    answerable: str | None = None


@dataclass(frozen=True)
class Questions:
    """Questions of a file.

    Attributes:
        items: the questions in the order of the file.
        unreadable: records without a question, and why.
        copies: records that were left out since they are equal to one before, id and text.
        renamed: questions whose id another one had before; they have its number behind theirs.
    """

    items: tuple[Question, ...]
    unreadable: tuple[Unreadable, ...] = ()
    copies: int = 0
    renamed: int = 0
    source: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Counts by kind, for reports."""
        texts = {one_line(item.text) for item in self.items}
        return {
            "questions": len(self.items),
            "unreadable": len(self.unreadable),
            "copies": self.copies,
            "ids_used_twice": self.renamed,
            "texts_used_twice": len(self.items) - len(texts),
            "without_gold": sum(not item.gold for item in self.items),
            "without_answer": sum(not item.answers for item in self.items),
        }


@dataclass
class _Seen:
    ids: set[str] = field(default_factory=set)
    records: set[tuple[str, str]] = field(default_factory=set)  # the ids as given, and texts
    copies: int = 0
    renamed: int = 0


def read_questions(path: str, fields: QuestionFields | None = None, limit: int | None = None) -> Questions:
    """Return the questions of a file.

    Args:
        path: a file, or a glob or folder of several.

    Raises:
        InputError: there is no such file, it holds no question, or a field that was named is in no record.
    """
    fields = fields or QuestionFields()
    found: list[Question] = []
    unreadable: list[Unreadable] = []
    named = {name for name in USUAL if getattr(fields, name) is not None}
    missing, seen = set(named), _Seen()
    for number, row in enumerate(rows_of(path)):
        if limit is not None and len(found) >= limit:
            missing.clear()
            break
        if isinstance(row, Unreadable):
            unreadable.append(row)
            continue
        chosen = {name: find_field(row.fields, getattr(fields, name), usual) for name, usual in USUAL.items()}
        missing -= {name for name, field_ in chosen.items() if field_ is not None}
        question = _question(number, row, chosen, seen)
        if isinstance(question, str):
            unreadable.append(Unreadable(path, row.record, question))
        elif question is not None:
            found.append(question)
    if not found:
        why = f": {unreadable[0].reason}" if unreadable else ""
        raise InputError(f"{path} holds no question{why}; name its field with --question-field")
    if missing:
        name = min(missing)
        raise InputError(f"no record of {path} has the field {getattr(fields, name)!r} for the {name}")
    return Questions(tuple(found), tuple(unreadable), seen.copies, seen.renamed, path)


def rows_of(path: str) -> Iterator[Row | Unreadable]:
    """Yield the records of a file, or of those that a glob or a folder names, and why one cannot be read.

    Raises:
        InputError: there is no such file.
    """
    for source in find_inputs([path]):
        yield from read_rows(source)


def strings(value: object) -> tuple[str, ...]:
    """Return the strings that a field holds, each once, form kept: one, a list, or a JSON list in a string.

    Numbers become their digits; null, empty strings and what is neither are left out.

    >>> strings('["a", "b"]'), strings(7), strings(None)
    (('a', 'b'), ('7',), ())
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            value = [value]
    items: Iterable[Any] = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    texts = (clean_text(str(item)).strip() for item in items if isinstance(item, str | int | float))
    return tuple(dict.fromkeys(text for text in texts if text))


def _question(number: int, row: Row, chosen: Mapping[str, str | None], seen: _Seen) -> Question | str | None:
    """Return a record's question, why it has none, or None for a copy of one before."""

    def said(name: str) -> object:
        field_ = chosen[name]
        return None if field_ is None else row.fields[field_]

    text = said("question")
    if not isinstance(text, str) or not clean_text(text).strip():
        there = ", ".join(list(row.fields)[:10])
        return f"no question in field {chosen['question']!r}" if chosen["question"] else f"no question; it has: {there}"
    text = clean_text(text).strip()
    own_id = next(iter(strings(said("id"))), f"#{number}")
    if (own_id, text) in seen.records:
        seen.copies += 1
        return None
    seen.records.add((own_id, text))
    if own_id in seen.ids:
        seen.renamed += 1
        own_id = f"{own_id} #{number}"
    seen.ids.add(own_id)
    answerable = said("answerable")
    return Question(
        own_id,
        text,
        next(iter(strings(said("type"))), ""),
        _answers(row.fields, chosen),
        strings(said("gold")),
        None if answerable is None else str(answerable).strip().lower() not in _FALSE,
    )


def _answers(fields: Mapping[str, object], chosen: Mapping[str, str | None]) -> tuple[str, ...]:
    others = [name for usual in USUAL["aliases"] if (name := find_field(fields, usual, ())) is not None]
    if chosen["aliases"] is not None and chosen["aliases"] not in others:  # named by an option
        others = [chosen["aliases"]]
    names = [name for name in (chosen["answer"], *others) if name is not None]
    return tuple(dict.fromkeys(text for name in names for text in strings(fields[name])))
