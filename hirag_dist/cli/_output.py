"""Output of the command line: tables and durations for people, one JSON object for machines, one line for an error."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from hirag_dist.composition.logs import configure_logging, is_json
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError

logger = logging.getLogger(__name__)
out = Console(highlight=False, soft_wrap=True)
if not (out.is_terminal or os.environ.get("COLUMNS")):
    out.width = 1000  # characters, which no table reaches: a row is a line that grep finds
err = Console(stderr=True, highlight=False, soft_wrap=True)
STILL_STARTING = (  # one line, which the demo looks for
    "Still starting: opening the index, and compiling if this is the first start after an installation (a minute or a "
    "few on a slow machine)."
)
VERSIONS = "documents or former versions"  # what removal counts: an edited document has both
FALLBACK_CODE = 3
_LATE_S = 5.0  # seconds after which a command says what it waits for
_MIN_TEXT_WIDTH = 14  # of a column of text that wraps
_state: dict[str, Any] = {"json": False, "stdout": None}


def use_json(wanted: bool) -> None:
    """Set whether stdout gets one JSON object instead of text."""
    _state["json"] = wanted


def claim_stdout() -> None:
    """Reserve stdout for `emit`: all other output of this process and its children goes to stderr.

    Ray's libraries write to the file descriptor, not through `sys.stdout`, when workers end.
    """
    use_json(True)
    try:
        _state["stdout"] = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # stdout or stderr is closed: there is nothing to separate
        _state["stdout"] = None


def emit(value: Any) -> None:
    """Print one JSON object."""
    line = json.dumps(value, ensure_ascii=False, default=str) + "\n"
    if _state["stdout"] is None:
        sys.stdout.write(line)
        sys.stdout.flush()
        return
    data = line.encode("utf-8", "replace")
    while data:
        data = data[os.write(_state["stdout"], data) :]


def emit_error(message: str) -> None:
    """Print one line on stderr, and a JSON object on stdout with --json."""
    if _state["json"]:
        emit({"error": message})
    if is_json():
        configure_logging({})  # an error of the arguments comes before
        logger.error("%s", message)
    else:
        print(f"hirag-dist: {message}", file=sys.stderr)


class _LogLines(io.StringIO):
    """A file whose lines go to the log."""

    _rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(None, lines):
            logger.info("%s", line)
        return len(text)


def log_output() -> None:
    """Send to the log what commands print on stderr."""
    logger.setLevel(logging.INFO)
    err.file = _LogLines()


@contextmanager
def told_when_late(message: str = STILL_STARTING) -> Iterator[Callable[[], None]]:
    """Print a message on stderr once, unless the block ends, or calls the function that is yielded, in time."""
    late = threading.Timer(_LATE_S, err.print, (message,), {"markup": False})
    late.daemon = True
    late.start()
    try:
        yield late.cancel
    finally:
        late.cancel()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file beside `path`, which takes its place at the end of the block.

    A block that fails leaves no part of the new file, and the former one as it was. What is there and is no file, such
    as /dev/stdout or /dev/null, is not replaced: its own path is yielded.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    new = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def conclude_reading(fallback: str) -> None:
    """Exit with 3 if another snapshot was read in place of the current one (`Snapshot.fallback`)."""
    if fallback:
        raise typer.Exit(FALLBACK_CODE)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Sequence[int] = (),
    spare: Sequence[int] = (),
) -> Table:
    """Return a table for a terminal. Numbers are never folded; text is.

    Args:
        right: the columns of numbers.
        spare: columns that are left out, in this order, if not all fit.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    natural = [max(cell_len(text) for text in (name, *(row[at] for row in cells))) for at, name in enumerate(columns)]
    least = [natural[at] if at in right else min(natural[at], _MIN_TEXT_WIDTH) for at in range(len(columns))]
    shown = list(range(len(columns)))
    for at in spare:
        if sum(least[one] + 2 for one in shown) - 2 <= out.width:
            break
        shown.remove(at)
    built = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for at in shown:
        if at in right:
            built.add_column(columns[at], justify="right", header_style="dim", no_wrap=True, min_width=natural[at])
        else:
            built.add_column(columns[at], header_style="dim", overflow="fold", min_width=least[at])
    for row in cells:
        built.add_row(*(row[at] for at in shown))
    return built


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).replace("[", "\\[")


def short(value: float) -> str:
    """Return a number in three digits or so.

    >>> short(0.25), short(12.3), short(45_600), short(7_800_000)
    ('0.25', '12.3', '45.6k', '7.8M')
    """
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{unit}" if value < 100 * limit else f"{value / limit:.0f}{unit}"
    return f"{value:.1f}" if value >= 10 and value % 1 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def seconds(duration: str, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        ConfigError: the text is no duration; the message names the option.

    >>> seconds("90m", "--every"), seconds("1.5d", "--every")
    (5400.0, 129600.0)
    """
    found = _DURATION.fullmatch(duration.strip())
    if found is None:
        raise ConfigError(f"{option} takes a number and a unit, such as 30s, 90m, 12h, 1d or 2w, not {duration!r}")
    return float(found[1]) * _UNITS[found[2]]


def duration_text(duration_s: float) -> str:
    """Return a duration for a person, in its two largest units.

    >>> duration_text(0.42), duration_text(59.6), duration_text(72.0), duration_text(9300.0)
    ('0.4 s', '1 min', '1 min 12 s', '2 h 35 min')
    """
    if duration_s < 9.95:
        return f"{duration_s:.1f} s"
    minutes, rest_s = divmod(round(duration_s), 60)
    if not minutes:
        return f"{rest_s} s"
    hours, rest_min = divmod(minutes, 60)
    first, second = (f"{hours} h", f"{rest_min} min") if hours else (f"{minutes} min", f"{rest_s} s")
    return f"{first} {second}" if (rest_min if hours else rest_s) else first


def about(duration_s: float) -> str:
    """Return a duration as text, in the unit that suits it.

    >>> about(8.2), about(700), about(9000)
    ('8 seconds', '12 minutes', '2.5 hours')
    """
    if duration_s < 90:
        return count_noun(round(duration_s), "second")
    return f"{duration_s / 60:,.0f} minutes" if duration_s < 5400 else f"{duration_s / 3600:,.1f} hours"
