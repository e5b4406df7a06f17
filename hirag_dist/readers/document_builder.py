"""Text, title and labels → a `Document`, or the reason why they make none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from hirag_dist.core.metadata.fields import collect_values
from hirag_dist.core.text.normalize import shorten
from hirag_dist.readers.encoding import NotText, clean_text, cleaned_offsets, decode_text
from hirag_dist.readers.model import Document, FileRefused, ReadOptions, TextPlace, Unreadable

FieldKind = Literal["text", "title", "label", "id"]
USUAL_FIELDS: Final[Mapping[FieldKind, tuple[str, ...]]] = {
    "text": ("text", "content", "contents", "body", "document", "page_content", "passage"),
    "title": ("title", "name", "headline"),
    "label": ("labels", "label", "acl"),
    "id": ("id", "_id", "doc_id", "document_id", "passage_id", "chunk_id", "docid", "pid"),
}
MAX_TITLE_CHARS = 1000
FIRST_WORDS_CHARS = 80
_TITLE_SCAN = 16 * MAX_TITLE_CHARS
_EMPTY = "the text is empty"
_OF_RECORD = ("the text is longer than ", "no field ", "field ", "the record is ", "the row has ")  # begin reasons

MOVE_LABELS: Final = "move it into the record, where it counts, or give it another name"
ROW_ENDS: Final = "the row ends before column "  # begins the reason for a row without its cell of labels


def find_field(names: Iterable[str], wanted: str | None, usual: tuple[str, ...]) -> str | None:
    """Return the name of a field, in any case: the one wanted, or the first usual one; None for none."""
    by_lower: dict[str, str] = {}
    for name in names:
        if name == wanted:
            return name
        by_lower.setdefault(name.strip().lower(), name)
    candidates = usual if wanted is None else (wanted.lower(),)
    return next((by_lower[name] for name in candidates if name in by_lower), None)


def label_fields(names: Iterable[str], wanted: str | None) -> list[str]:
    """Return the names of all fields for labels, in any case: of the one wanted, or of all usual ones."""
    usual = USUAL_FIELDS["label"] if wanted is None else (wanted.strip().lower(),)
    return [name for name in names if name.strip().lower() in usual]


def doubled_labels(names: Iterable[str], wanted: str | None) -> str | None:
    """Return the reason why names cannot be used, of which one for labels is there twice; None where none is."""
    found = label_fields(names, wanted)
    twice = next((name for name in found if found.count(name) > 1), None)
    return None if twice is None else f"the field {twice!r} with the labels is there twice"


def unread_labels(beside: object, options: ReadOptions) -> str | None:
    """Return the usual field for labels that is filled in an object around or within a record, where none is named."""
    if not isinstance(beside, dict) or options.label_field is not None:
        return None
    return next((name for name in label_fields(beside, None) if beside[name] not in (None, "", [])), None)


def kind_of(value: object) -> str:
    """Return in plain words what a JSON value is."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else kinds.get(type(value), "a number")


@dataclass(frozen=True, slots=True)
class DocumentBuilder:
    """Makes the documents of one file.

    Attributes:
        uri: as in `Document`.
        stem: the file's name without extensions, the default title.
        options: which fields to take.
        path: of the file in the index.
    """

    uri: str
    stem: str
    options: ReadOptions
    path: str = ""

    def field(self, kind: FieldKind, names: Iterable[str]) -> str | None:
        """Return the name of the field of a kind: the one that the options name, or the first usual one."""
        return find_field(names, getattr(self.options, f"{kind}_field"), USUAL_FIELDS[kind])

    def unreadable(self, record: int | None, reason: str) -> Unreadable:
        """Return the absence of a record, None for that of the whole file, with its reason on one line."""
        return Unreadable(self.uri, record or 0, _one_line(reason), is_file=record is None)

    def document(
        self,
        text: str,
        *,
        title: object = None,
        labels: Sequence[object] = (),
        record: int = 0,
        default_title: str | None = None,
        source_id: object = None,
        places: Iterable[TextPlace] = (),
        properties: Mapping[str, object] | None = None,
    ) -> Document | Unreadable:
        """Return the document of a text, cleaned; `Unreadable` for an empty text or labels that are none.

        Args:
            labels: what each field for labels holds; empty where there is no such field.
            source_id: what the field for the owner's id holds.
            places: of the text before it is cleaned.
            properties: what metadata may be taken from, by name.
        """
        given, text = text, clean_text(text)
        if not text or text.isspace():
            return self.unreadable(record, _EMPTY)
        limit = self.options.max_document_bytes
        if len(text) > limit or (len(text) > limit // 4 and len(text.encode()) > limit):
            return self.unreadable(record, f"the text is longer than {limit} bytes: split it")
        if not labels and self.options.label_field is not None:
            missing = f"no field {self.options.label_field!r} with the labels"
            return self.unreadable(record, f"{missing}; what has none to give can be a record of JSONL that has it")
        try:
            filled = [names for names in map(_labels, labels) if names]
        except ValueError as error:
            return self.unreadable(record, str(error))
        if len(set(map(frozenset, filled))) > 1:
            named = self.options.label_field is not None  # then they differ in case
            todo = "keep one of them" if named else "name the one that holds in reading.label_field (--label-field)"
            return self.unreadable(record, f"the fields with the labels differ; {todo}")
        names = filled[0] if filled else ()
        title = _title(title) or _title(default_title) or self.stem
        own_places = tuple(places)
        if text != given:
            at = cleaned_offsets(given)
            moved = (replace(place, start=at(place.start), end=at(place.end)) for place in own_places)
            own_places = tuple(place for place in moved if place.start < place.end)
        values, faults = collect_values(self.options.metadata, properties or {}, self.path)
        reasons = tuple(map(_one_line, faults))
        return Document(self.uri, title, text, names, record, _source_id(source_id), own_places, values, reasons)

    def from_fields(
        self, fields: Mapping[str, object], record: int, default_title: str | None = None, key: str | None = None
    ) -> Document | Unreadable:
        """Return the document in an object or a row; `Unreadable` where it has no text or bad labels.

        Args:
            key: the record's own in its file, which is its id where no field holds one.
        """
        options = self.options
        present = [name for name, value in fields.items() if value is not None]
        text_field = self.field("text", present)
        if text_field is None:
            empty = self.field("text", fields)
            if empty is not None:
                return self.unreadable(record, f"field {empty!r} is null, so that there is no text")
            return self.unreadable(record, missing_text(list(fields), options.text_field))
        text = fields[text_field]
        if isinstance(text, bytes):
            try:
                text = decode_text(text, named=options.encoding)
            except (NotText, FileRefused) as error:
                return self.unreadable(record, str(error))
        if not isinstance(text, str):
            return self.unreadable(record, f"field {text_field!r} is {kind_of(text)}, not a string")
        labels = label_fields(fields, options.label_field)
        if not labels and (within := unread_labels(fields.get("metadata"), options)):
            return self.unreadable(record, f"the field {within!r} with the labels is within 'metadata': {MOVE_LABELS}")
        title_field = self.field("title", present)
        id_field = self.field("id", present)
        if id_field is None and options.id_field is not None:
            why = f"no field {options.id_field!r} with the id; name another in reading.id_field (--id-field)"
            return self.unreadable(record, why)
        return self.document(
            text,
            title=None if title_field is None else fields[title_field],
            labels=[fields[name] for name in labels],
            record=record,
            default_title=default_title or self.title_of(text, record),
            source_id=key if id_field is None else fields[id_field],
            properties=fields,
        )

    def title_of(self, text: str, record: int) -> str:
        """Return the title of a record without one: its first words, else the file's stem and its number."""
        line = next((line for line in text[:_TITLE_SCAN].splitlines() if any(map(str.isalnum, line))), "")
        words = shorten(_one_line(clean_text(line)).lstrip("#*>- "), FIRST_WORDS_CHARS)
        return words or f"{self.stem}#{record}"


def missing_text(names: list[str], wanted: str | None) -> str:
    """Return the reason for a record or table without text."""
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    field = f"no field {wanted!r}" if wanted is not None else f"no field named {', '.join(USUAL_FIELDS['text'])}"
    return f"{field}; there is: {shown or 'nothing'}; name it in reading.text_field (--text-field)"


def is_missing_text(reason: str, wanted: str) -> bool:
    """Check that `missing_text` gave the reason, for this wanted field."""
    return reason.startswith(f"no field {wanted!r}; there is: ")


def is_whole_record(reason: str) -> bool:
    """Check that a record was read whole and refused for what it holds: that its file breaks off is no reason then."""
    if reason.startswith(ROW_ENDS):
        return False
    return reason == _EMPTY or reason.startswith(_OF_RECORD) or is_access_refusal(reason)


def is_access_refusal(reason: str) -> bool:
    """Check that a file or record was left out because of its labels or where its link leads, not for its content."""
    about_access = ("with the labels", "names labels", "the labels are neither", "a link that leads out of INPUT")
    return any(part in reason for part in about_access)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _title(value: object) -> str:
    """Return a title on one line, cut to `MAX_TITLE_CHARS`; empty for none."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        title = " ".join(clean_text(str(value)[:_TITLE_SCAN]).split())
        return title if len(title) <= MAX_TITLE_CHARS else title[: MAX_TITLE_CHARS - 1] + "…"
    return ""


def _source_id(value: object) -> str:
    """Return an id as it is written; empty for what is none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return clean_text(str(value)).strip() if isinstance(value, (str, int, float)) else ""


def _labels(value: object) -> tuple[str, ...]:
    """Return labels of a string, of a JSON list in a string (as CSV has them), or of a list.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    if value is None:
        return ()
    items = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, (str, int, float)) for item in items):
        raise ValueError("the labels are neither a string nor a list of strings")
    names = (" ".join(clean_text(str(item)).split()) for item in items)
    return tuple(dict.fromkeys(name for name in names if name))
