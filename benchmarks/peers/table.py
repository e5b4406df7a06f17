"""Rows to tables: Markdown for documents, the same columns in a terminal, and ratios to hirag-dist."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

Row = Mapping[str, Any]

OWN = "hirag-dist"
_NONE = "–"


def _at(*keys: str, scale: float = 1.0, form: str = ",.0f") -> Callable[[Row], str]:
    """Return a formatter of one figure of a row; a dash stands for a missing one."""

    def write(row: Row) -> str:
        value = figure(row, *keys)
        return _NONE if value is None else format(value * scale, form)

    return write


def figure(row: Row, *keys: str) -> float | None:
    """Return a figure of a row, or None."""
    value: Any = row
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, int | float) else None


def _tokens(row: Row) -> float | None:
    parts = [figure(row, "index", name) for name in ("chat_input_tokens", "chat_output_tokens")]
    return None if None in parts else sum(part for part in parts if part is not None)


def _millions(row: Row) -> str:
    tokens = _tokens(row)
    return _NONE if tokens is None else f"{tokens / 1e6:.2f}"


def _load(row: Row) -> str:
    index = row.get("index", {})
    if not index:
        return _NONE
    return f"{index['load_before']:.1f} → {index['load_after']:.1f}"


INDEX: Mapping[str, Callable[[Row], str]] = {
    "CPU s": _at("index", "cpu_s", form=",.1f"),
    "wall s": _at("index", "wall_s", form=",.1f"),
    "load": _load,
    "peak MB": _at("index", "peak_mb"),
    "chat calls": _at("index", "chat_calls"),
    "chat M tokens": _millions,
    "embedding calls": _at("index", "embedding_calls"),
    "texts": _at("index", "embedded_texts"),
    "entities": _at("sizes", "entities"),
    "relations": _at("sizes", "relations"),
    "communities": _at("sizes", "communities"),
    "reports": _at("sizes", "reports"),
}
QUERY: Mapping[str, Callable[[Row], str]] = {
    "answer CPU ms": _at("alone", "cpu_ms", form=",.1f"),
    "p50 ms": _at("alone", "p50_ms", form=",.1f"),
    "p99 ms": _at("alone", "p99_ms", form=",.1f"),
    "context CPU ms": _at("context", "cpu_ms", form=",.1f"),
    "context p50 ms": _at("context", "p50_ms", form=",.1f"),
    "context chars": _at("context", "chars"),
    "answers / s": _at("clients", "answers_s", form=",.1f"),
    "CPU ms each": _at("clients", "cpu_ms", form=",.1f"),
    "peak MB": _at("query", "peak_mb"),
    "chat calls": _at("query", "chat_calls"),
    "open s": _at("query", "open_s", form=",.2f"),
    "import s": _at("query", "import_s", form=",.2f"),
}
_RATIOS: Mapping[str, Callable[[Row], float | None]] = {
    "index CPU": lambda row: figure(row, "index", "cpu_s"),
    "peak memory": lambda row: figure(row, "index", "peak_mb"),
    "chat calls": lambda row: figure(row, "index", "chat_calls"),
    "chat tokens": _tokens,
    "answer CPU": lambda row: figure(row, "alone", "cpu_ms"),
    "context CPU": lambda row: figure(row, "context", "cpu_ms"),
    "answers / s": lambda row: figure(row, "clients", "answers_s"),
}


def cells(rows: Sequence[Row], columns: Mapping[str, Callable[[Row], str]]) -> list[list[str]]:
    """Return a header and a line for each row."""
    lines = [["", *columns]]
    for row in rows:
        lines.append([f"{row['peer']} {row.get('version', '')}".strip(), *(write(row) for write in columns.values())])
    return lines


def ratios(rows: Sequence[Row]) -> list[list[str]]:
    """Return each row's figures over hirag-dist's of the same corpus; nothing where that row is not there."""
    own = {row["digest"]: row for row in rows if row["peer"] == OWN and "failed" not in row}
    lines = [["", *_RATIOS]]
    for row in rows:
        base = own.get(row["digest"])
        if base is None or row is base or "failed" in row:
            continue
        line = [row["peer"]]
        for read in _RATIOS.values():
            one, other = read(row), read(base)
            line.append(_NONE if one is None or not other else f"{one / other:.2f}")
        lines.append(line)
    return lines if len(lines) > 1 else []


def markdown(rows: Sequence[Row]) -> str:
    """Return the tables of each corpus, and what failed or is in doubt."""
    parts: list[str] = []
    for digest in dict.fromkeys(row["digest"] for row in rows):
        mine = [row for row in rows if row["digest"] == digest]
        first = mine[0]
        parts.append(f"### {first['corpus']}: {first['documents']} documents, {first['tokens']:,} tokens")
        good = [row for row in mine if "failed" not in row]
        asked = next((row["alone"]["questions"] for row in good), 0)
        for title, lines in (
            ("Index", cells(good, INDEX)),
            (f"Questions ({asked} in each part)", cells(good, QUERY)),
            (f"Times {OWN}'s figure", ratios(mine)),
        ):
            if len(lines) > 1:
                parts.append(f"{title}\n\n{_markdown(lines)}")
        parts += [f"- **{row['peer']}** failed: {row['failed']}" for row in mine if "failed" in row]
        parts += [f"- **{row['peer']}**: {row['doubt']}" for row in mine if "doubt" in row]
    return "\n\n".join(parts) + "\n"


def terminal(rows: Sequence[Row]) -> list[Table]:
    """Return the same as tables for a terminal."""
    found = []
    for title, lines in (("index", cells(rows, INDEX)), ("questions", cells(rows, QUERY)), ("ratios", ratios(rows))):
        if len(lines) < 2:
            continue
        table = Table(box=None, header_style="dim", title=title, title_justify="left")
        for number, name in enumerate(lines[0]):
            table.add_column(name, justify="right" if number else "left")
        for line in lines[1:]:
            table.add_row(*line)
        found.append(table)
    return found


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    rule = "|" + "---|" * 1 + "---:|" * (len(lines[0]) - 1)
    return "\n".join([head, rule, *rest])
