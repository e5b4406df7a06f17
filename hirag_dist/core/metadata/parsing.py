r"""Text → filter expression, checked against the declared fields.

    expression  = all { "or" all }
    all         = term { "and" term }
    term        = "not" term | "(" expression ")" | condition
    condition   = field ( "=" | "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
                | field [ "not" ] "in" "(" value { "," value } ")"
                | field "has" ( value | ( "any" | "all" ) "(" value { "," value } ")" )
                | field "starts" "with" string
                | field "is" [ "not" ] "missing"
                | field                                     of type bool
    value       = string | number | date | "true" | "false"

Words of the language are understood in any case. Strings are in double or single quotes, with \ before a quote or \;
dates are ISO 8601, with or without quotes.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from hirag_dist.core.metadata.fields import (
    And,
    Expression,
    FieldComparison,
    IsMissing,
    Not,
    OneOf,
    Operand,
    Operator,
    Or,
    Prefix,
    parse_period,
)
from hirag_dist.types.index_info import RESERVED_WORDS, MetadataField

MAX_TEXT: Final = 16_384
"""Characters of an expression."""
MAX_TERMS: Final = 1024
"""Conditions and values of an expression."""
MAX_DEPTH: Final = 32
"""Parentheses and `not` inside each other."""
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<date>\d{4}-\d{2}(?:-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?)?(?![\w.-]))
  | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.-]))
  | (?P<name>[^\W\d]\w*)
  | (?P<mark><=|>=|!=|==|[=<>(),])
  | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_OPERATORS: Final = ("=", "==", "!=", "<", "<=", ">", ">=")


class FilterError(ValueError):
    """An expression that cannot be used; the message says where and why."""


class _Token(NamedTuple):
    """A word of an expression.

    Attributes:
        kind: string, date, number, word (of the language), name (of a field), mark or end.
        text: of a word in lower case, of a string without quotes.
        at: its position, from 0.
    """

    kind: str
    text: str
    at: int


def parse_filter(text: str, fields: Sequence[MetadataField]) -> Expression:
    """Return the expression of a text.

    Raises:
        FilterError: it is too long or too deep, no expression, or does not fit the fields.
    """
    if len(text) > MAX_TEXT:
        raise FilterError(f"it has {len(text)} characters; at most {MAX_TEXT} are read")
    return _Parser(_tokens(text), fields).whole()


def as_of_filter(text: str, field: str) -> Expression:
    """Return the expression that a date field is not later than a time.

    Raises:
        FilterError: the text is no date or time.
    """
    try:
        return FieldComparison(field, "<=", parse_period(text))
    except ValueError as error:
        raise FilterError(str(error)) from None


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise _fault(start, _unreadable(text[start:]))
        kind = str(match.lastgroup)
        value, start = match[kind], match.start(kind)
        if kind == "string":
            value = _unquoted(value, start)
        elif kind == "name" and value.lower() in RESERVED_WORDS:
            kind, value = "word", value.lower()
        found.append(_Token(kind, value, start))
        at = match.end()
    return found


def _unquoted(quoted: str, at: int) -> str:
    for escape in _ESCAPE.finditer(quoted[1:-1]):
        if escape[1] not in "\"'\\":
            raise _fault(at + 1 + escape.start(), f"{escape[0]!r} is no escape; write \\ before a quote or \\ only")
    return unicodedata.normalize("NFC", _ESCAPE.sub(r"\1", quoted[1:-1])).strip()


def _unreadable(rest: str) -> str:
    if rest[0] in "\"'":
        return f"the string that begins with {rest[0]} has no end"
    if rest[0] in "&|!":
        return f"{rest[0]!r} is not known; write and, or, not"
    word = rest.split(None, 1)[0][:40]
    return f"{word!r} is neither a number nor a date nor a name" if rest[0].isdigit() else f"{rest[0]!r} is not known"


def _fault(at: int, reason: str) -> FilterError:
    return FilterError(f"character {at + 1}: {reason}")


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, tokens: Sequence[_Token], fields: Sequence[MetadataField]) -> None:
        self._tokens = tokens
        self._fields = {field.name: field for field in fields}
        self._position = 0
        self._terms = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._any()
        token = self._next()
        if token.kind != "end":
            raise _fault(token.at, f"{token.text!r} is not expected here; join conditions with and, or")
        return found

    def _any(self) -> Expression:
        terms = [self._all()]
        while self._takes("or"):
            terms.append(self._all())
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def _all(self) -> Expression:
        terms = [self._term()]
        while self._takes("and"):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _term(self) -> Expression:
        token = self._peek()
        if token.text not in ("not", "(") or token.kind not in ("word", "mark"):
            return self._condition()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _fault(token.at, f"more than {MAX_DEPTH} parentheses and not inside each other")
        self._next()
        if token.text == "not":
            found: Expression = Not(self._term())
        else:
            found = self._any()
            self._expect(")")
        self._depth -= 1
        return found

    def _condition(self) -> Expression:
        field = self._field()
        token = self._peek()
        if token.kind == "mark" and token.text in _OPERATORS:
            self._next()
            return self._comparison(field, token)
        if token.kind == "word":
            match token.text:
                case "in":
                    self._next()
                    return self._one_of(field, token)
                case "not":
                    self._next()
                    self._expect("in")
                    return Not(self._one_of(field, token))
                case "has":
                    self._next()
                    return self._has(field, token)
                case "starts":
                    self._next()
                    self._expect("with")
                    if field.type != "string":
                        raise _fault(token.at, f"{field} is no string")
                    return Prefix(field.name, cast(str, self._value(field)))
                case "is":
                    self._next()
                    negated = self._takes("not")
                    self._expect("missing")
                    missing = IsMissing(field.name)
                    return Not(missing) if negated else missing
        if field.type == "bool" and not field.list:
            return FieldComparison(field.name, "=", True)
        raise _fault(token.at, f"a condition on {field} goes on with {_conditions(field)}, not with {_named(token)}")

    def _field(self) -> MetadataField:
        token = self._next()
        self._count(token)
        if token.kind != "name":
            raise _fault(token.at, f"the name of a field is expected, not {_named(token)}; {self._declared()}")
        field = self._fields.get(token.text)
        if field is None:
            near = difflib.get_close_matches(token.text, self._fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _fault(token.at, f"there is no field {token.text!r}{hint}; {self._declared()}")
        return field

    def _comparison(self, field: MetadataField, operator: _Token) -> Expression:
        if field.list:
            raise _fault(operator.at, f"{field} may have several values: write {field.name} has …")
        if field.type == "bool" and operator.text not in ("=", "==", "!="):
            raise _fault(operator.at, f"{field} is true or false: write {field.name}, or not {field.name}")
        value = self._value(field)
        if operator.text == "!=":
            return Not(FieldComparison(field.name, "=", value))
        return FieldComparison(field.name, "=" if operator.text == "==" else cast(Operator, operator.text), value)

    def _one_of(self, field: MetadataField, token: _Token) -> Expression:
        if field.list:
            raise _fault(token.at, f"{field} may have several values: write {field.name} has any (…)")
        return OneOf(field.name, self._values(field))

    def _has(self, field: MetadataField, token: _Token) -> Expression:
        if not field.list:
            raise _fault(token.at, f"{field} has one value: write {field.name} = …, or {field.name} in (…)")
        if self._takes("any"):
            return OneOf(field.name, self._values(field))
        if self._takes("all"):
            return And(tuple(OneOf(field.name, (value,)) for value in self._values(field)))
        return OneOf(field.name, (self._value(field),))

    def _values(self, field: MetadataField) -> tuple[Operand, ...]:
        self._expect("(")
        values = [self._value(field)]
        while self._takes(","):
            values.append(self._value(field))
        self._expect(")")
        return tuple(dict.fromkeys(values))

    def _value(self, field: MetadataField) -> Operand:
        token = self._next()
        self._count(token)
        if field.type == "string" and token.kind == "string":
            return token.text
        if field.type == "number" and token.kind == "number":
            return float(token.text)
        if field.type == "bool" and token.kind == "word" and token.text in ("true", "false"):
            return token.text == "true"
        if field.type == "date" and token.kind in ("date", "string", "number"):
            try:
                return parse_period(token.text)
            except ValueError as error:
                raise _fault(token.at, str(error)) from None
        raise _fault(token.at, f"{field} is compared with {_VALUES[field.type]}, not with {_named(token)}")

    def _count(self, token: _Token) -> None:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise _fault(token.at, f"more than {MAX_TERMS} conditions and values")

    def _declared(self) -> str:
        return f"the fields are {', '.join(map(str, self._fields.values()))}"

    def _peek(self) -> _Token:
        return self._tokens[self._position]

    def _next(self) -> _Token:
        token = self._peek()
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return token

    def _takes(self, text: str) -> bool:
        token = self._peek()
        if token.kind not in ("word", "mark") or token.text != text:
            return False
        self._next()
        return True

    def _expect(self, text: str) -> None:
        token = self._peek()
        if not self._takes(text):
            raise _fault(token.at, f"{text} is expected, not {_named(token)}")


_VALUES: Final = {
    "string": "a string in quotes",
    "number": "a number",
    "date": "a date, such as 2024-01-31",
    "bool": "true or false",
}


def _conditions(field: MetadataField) -> str:
    if field.list:
        return "has, or is missing"
    return f"=, !=, <, <=, >, >=, in, {'starts with, ' if field.type == 'string' else ''}or is missing"


def _named(token: _Token) -> str:
    if token.kind == "end":
        return "the end"
    return f"the string {token.text[:40]!r}" if token.kind == "string" else repr(token.text[:40])
