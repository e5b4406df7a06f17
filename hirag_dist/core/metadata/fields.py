"""Metadata fields of documents: their types, and the values that texts, records and properties give them.

In a filter expression, a document without a value meets no condition on the field except `is missing`; `not`, `!=` and
`not in` are the opposite of the condition, so such a document meets them.

Dates and times are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, NamedTuple

from hirag_dist.types.index_info import FieldType, MetadataField

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
_LAST = datetime.max.replace(tzinfo=UTC)
ISO = re.compile(
    r"(\d{4})(?:-(\d{2})(?:-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(Z|[+-]\d{2}:?\d{2})?)?)?)?",
    re.ASCII,
)
_PDF = re.compile(r"D:(\d{4})(\d{2})?(\d{2})?(\d{2})?(\d{2})?(\d{2})?(Z|[+-]\d{2}'?\d{2})?'?(?:00'?)?", re.ASCII)
_MAIL = re.compile(r"(?:[A-Za-z]{3}, *)?\d{1,2} [A-Za-z]{3} \d{4} \d{1,2}:\d{2}")


class Period(NamedTuple):
    """The time that a text names, as precisely as it does: from `start` up to `end`, which is not part of it."""

    start: int
    end: int


def parse_period(text: str) -> Period:
    """Return the time that an ISO 8601 text names: a year, a month, a day, or a time, by default in UTC.

    >>> [value // 86_400_000_000 for value in parse_period("1970-02")]
    [31, 59]

    Raises:
        ValueError: it is no date or time.
    """
    found = ISO.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{_shown(text)} is no date: write ISO 8601, such as 2024-01-31 or 2024-01-31T12:00:00Z")
    *parts, fraction, zone = found.groups()
    year, month, day, hour, _, second = parts
    try:
        start = _moment(parts, fraction, zone)
        if hour is not None:
            unit = timedelta(microseconds=1) if fraction else timedelta(seconds=1) if second else timedelta(minutes=1)
            return Period(start, start + unit // _MICROSECOND)
        if day is not None:
            return Period(start, start + _DAY_US)
        after = (int(year) + 1, 1) if month is None else (int(year) + int(month) // 12, int(month) % 12 + 1)
        end = microseconds(_LAST) + 1 if after[0] > MAXYEAR else microseconds(datetime(*after, 1, tzinfo=UTC))
    except (ValueError, OverflowError):
        raise ValueError(f"{_shown(text)} is no date: there is no such day or time") from None
    return Period(start, end)


def parse_moment(text: str) -> int:
    """Return the beginning of the time that a text names: ISO 8601, a date of a PDF, or one of an e-mail.

    Raises:
        ValueError: it is no date or time.
    """
    text = text.strip()
    pdf = _PDF.fullmatch(text)
    try:
        if pdf is not None:
            *parts, zone = pdf.groups()
            return _moment(parts, None, zone and zone.replace("'", ""))
        if _MAIL.match(text):
            return microseconds(parsedate_to_datetime(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{_shown(text)} is no date: there is no such day or time") from None
    return parse_period(text).start


def microseconds(moment: date) -> int:
    """Return a date or time as microseconds; a time without a zone is in UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def date_text(value: int) -> str:
    """Return a time as ISO 8601: a day where it is the beginning of one.

    >>> date_text(0), date_text(86_400_000_000 + 1_000_000)
    ('1970-01-01', '1970-01-02T00:00:01Z')
    """
    moment = _EPOCH + timedelta(microseconds=value)
    if value % _DAY_US == 0:
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _moment(parts: Sequence[str | None], fraction: str | None, zone: str | None) -> int:
    """Return a time from the digits of its year, month, day, hour, minute and second; what is missing is the first."""
    year, month, day, hour, minute, second = (
        int(part or first) for part, first in zip(parts, (1, 1, 1, 0, 0, 0), strict=True)
    )
    moment = datetime(year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")[:6]), UTC)
    value = microseconds(moment)
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        offset = timedelta(hours=hours, minutes=minutes) // _MICROSECOND
        value -= offset if zone[0] == "+" else -offset
    if not microseconds(datetime.min.replace(tzinfo=UTC)) <= value <= microseconds(_LAST):
        raise ValueError(value)
    return value


MAX_CHARACTERS: Final = 1024
"""Of a string."""
MAX_VALUES: Final = 1000
"""Of a list."""
_MAX_WHOLE: Final = 2**53  # whole numbers up to it are exact as floats
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
Value = str | float | bool


class WrongValue(ValueError):
    """A value that is not of its field's type; the message says why."""


@dataclass(frozen=True, slots=True)
class FieldSource:
    """A declared field, and where its value comes from: a record's field, else the path of the file.

    Attributes:
        keys: names of the field in records, front matter, and properties of HTML and PDF, in any case; the first one
            with a value. `a.b` names a field of an object.
        path: regular expression, searched in the path; its first group, or the whole match, is the value.
        separator: between the values of a list in one text; "" for none.
    """

    field: MetadataField
    keys: tuple[str, ...]
    path: str = ""
    separator: str = ""


def collect_values(
    sources: Iterable[FieldSource], properties: Mapping[str, object], path: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata of a document, and a reason for each field whose value is of another type.

    Args:
        properties: name → value of what the document brings: fields of a record, front matter, properties.
        path: of the file, in the index.

    Returns:
        values: JSON by field, dates as ISO 8601 texts, lists as lists; fields without a value are absent.
        faults: one line each.
    """
    by_lower = _by_lower(properties)
    values: dict[str, Any] = {}
    faults = []
    for source in sources:
        found = (_property(by_lower, key.lower()) for key in source.keys)
        given = next(filter(_is_given, found), None)
        if given is None and source.path and (match := re.search(source.path, path)):
            given = match[1] if match.re.groups else match[0]
        try:
            value = typed_value(source.field, given, source.separator)
        except WrongValue as error:
            faults.append(f"metadata field {source.field.name}: {error}")
            continue
        if value is not None:
            values[source.field.name] = value
    return values, faults


def typed_value(field: MetadataField, given: object, separator: str = "") -> Any:
    """Return a value of a field's type as JSON; None where nothing is given.

    Raises:
        WrongValue: the value is of another type.
    """
    if not _is_given(given):
        return None
    items = [item for item in _items(given, separator if field.list else "") if _is_given(item)]
    if not field.list:
        if len(items) > 1:
            raise WrongValue(f"{len(items)} values; declare it as a list")
        return _scalar(field.type, items[0]) if items else None
    if len(items) > MAX_VALUES:
        raise WrongValue(f"{len(items)} values; at most {MAX_VALUES} are kept")
    values = [_scalar(field.type, item) for item in items]
    return list(dict.fromkeys(values)) or None


def _by_lower(properties: Mapping[Any, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in properties.items():
        found.setdefault(str(name).strip().lower(), value)
    return found


def _property(by_lower: Mapping[str, object], key: str) -> object:
    """Return the value of a key; `a.b` is `b` of the object `a`, where there is no such name."""
    if key in by_lower:
        return by_lower[key]
    outer, _, inner = key.partition(".")
    value = by_lower.get(outer)
    return _property(_by_lower(value), inner) if inner and isinstance(value, Mapping) else None


def _items(given: object, separator: str) -> list[object]:
    if isinstance(given, str):
        text = given.strip()
        if text.startswith("["):
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError):
                parsed = text
            if isinstance(parsed, list):
                return parsed
        return [part.strip() for part in text.split(separator)] if separator else [text]
    return list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]


def _scalar(kind: FieldType, given: object) -> Value:
    if isinstance(given, bytes):
        given = given.decode("utf-8", "replace")
    match kind:
        case "string":
            return _string(given)
        case "number":
            return _number(given)
        case "date":
            return _date(given)
        case "bool":
            text = str(given).strip().lower()
            if isinstance(given, (bool, str, int)) and text in (*_TRUE, *_FALSE):
                return text in _TRUE
            raise WrongValue(f"{_shown(given)} is neither true nor false")


def _string(given: object) -> str:
    if isinstance(given, bool) or not isinstance(given, (str, int, float, date)):
        raise WrongValue(f"{_shown(given)} is no string")
    text = unicodedata.normalize("NFC", str(given).encode("utf-8", "replace").decode()).strip()
    if len(text) > MAX_CHARACTERS:
        raise WrongValue(f"a string of {len(text)} characters; at most {MAX_CHARACTERS} are kept")
    return text


def _number(given: object) -> float:
    number: float
    if isinstance(given, str):
        try:
            number = int(given) if re.fullmatch(r"[+-]?\d{1,18}", given.strip()) else float(given)
        except ValueError:
            raise WrongValue(f"{_shown(given)} is no number") from None
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        number = given
    elif isinstance(given, Decimal):
        number = float(given)
    else:
        raise WrongValue(f"{_shown(given)} is no number")
    if isinstance(number, int) and abs(number) > _MAX_WHOLE:
        raise WrongValue(f"{_shown(given)} is too large to be exact; declare the field as string")
    if not math.isfinite(number):
        raise WrongValue(f"{_shown(given)} is no finite number")
    return int(number) if number == int(number) and abs(number) <= _MAX_WHOLE else number


def _date(given: object) -> str:
    if isinstance(given, date):  # datetime too
        return date_text(microseconds(given))
    if isinstance(given, int) and not isinstance(given, bool) and 1000 <= given <= 9999:
        given = str(given)  # a year
    if not isinstance(given, str):
        raise WrongValue(f"{_shown(given)} is no date: write ISO 8601, such as 2024-01-31")
    try:
        return date_text(parse_moment(given))
    except ValueError as error:
        raise WrongValue(str(error)) from None


def _is_given(value: object) -> bool:
    return value is not None and value != [] and not (isinstance(value, str) and not value.strip())


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 80 else text[:79] + "…"


Operator = Literal["=", "<", "<=", ">", ">="]
Operand = str | float | bool | Period


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A field's value compared with another; a list meets it where one of its values does."""

    field: str
    operator: Operator
    value: Operand


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the field's values is one of these."""

    field: str
    values: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """One of the field's strings starts with this one."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class IsMissing:
    """The field has no value."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    term: Expression


@dataclass(frozen=True, slots=True)
class And:
    """All terms."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one term."""

    terms: tuple[Expression, ...]


Expression = FieldComparison | OneOf | Prefix | IsMissing | Not | And | Or
