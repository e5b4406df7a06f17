"""Tables of the measurements: stages and their growth, the service, and what a corpus of each size takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.scale.measurements import MeasuredSize, StageSum, added, exponent, extrapolated

BILLION = 1e9
PRICES = {"gpt-4o-mini": (0.15, 0.60), "gpt-4.1-mini": (0.40, 1.60), "gpt-4.1": (2.00, 8.00)}  # list prices of 2025-11
RATES = (1e6, 10e6, 100e6)  # tokens a minute
WORKER_CORES, BUSY = 2, 0.5  # of a machine; share of its time that its CPU may be busy while models are called
MIN_CPU_S = 1.0  # growth of a stage that took less at the largest size is not shown
Measured = Mapping[int, MeasuredSize]


def count(number: float) -> str:
    """Return a number with three digits.

    >>> [count(number) for number in (942, 16_349, 1_710_000)]
    ['942', '16,300', '1.71 M']
    """
    if number >= 1e9:
        return f"{number / 1e9:.3g} G"
    if number >= 1e6:
        return f"{number / 1e6:.3g} M"
    digits = max(0, len(str(int(number))) - 3)
    return f"{round(number, -digits):,.0f}"


def size(number: float, unit: float = 1e9, name: str = "GB") -> str:
    """Return bytes in a unit, with three digits at most."""
    return f"{number / unit:.3g} {name}"


def duration(seconds: float) -> str:
    """Return a time.

    >>> [duration(time) for time in (51, 511, 51_100, 511_000)]
    ['51 s', '8.5 min', '14 h 12 min', '142 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.2g} min"
    if seconds < 86400:
        return f"{seconds // 3600:.0f} h {seconds % 3600 / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the public table.

    Attributes:
        value: of a measured size.
        show: how a value is written.
        grows: with the corpus; False for a ratio, which is taken over from the largest size.
    """

    label: str
    value: Callable[[MeasuredSize], float]
    show: Callable[[float], str] = count
    grows: bool = True


def _calls_tokens(one: MeasuredSize, *names: str) -> float:
    sums = one.whole().sums
    return float(sum(sums[name] for name in names))


def _dollars(prices: tuple[float, float]) -> Callable[[MeasuredSize], float]:
    def cost(one: MeasuredSize) -> float:
        tokens = _calls_tokens(one, "input_tokens"), _calls_tokens(one, "output_tokens")
        return sum(price * n for price, n in zip(prices, tokens, strict=True)) / 1e6

    return cost


def _call_seconds(rate: float, one: MeasuredSize) -> float:
    return 60 * _calls_tokens(one, "input_tokens", "output_tokens") / rate


def _machines(rate: float, one: MeasuredSize) -> float:
    return one.whole().own_cpu_s / (_call_seconds(rate, one) * WORKER_CORES * BUSY)


def public_rows() -> list[Row]:
    """Return the rows of the public table."""
    rows = [
        Row("corpus, tokens", lambda one: one.tokens),
        Row("documents", lambda one: one.totals["counts"]["documents"]),
        Row("chunks", lambda one: one.totals["counts"]["chunks"]),
        Row("calls to the chat model", lambda one: _calls_tokens(one, "calls")),
        Row("their tokens, in", lambda one: _calls_tokens(one, "input_tokens")),
        Row("their tokens, out", lambda one: _calls_tokens(one, "output_tokens")),
        Row("entities, all layers", lambda one: one.totals["counts"]["entities"]),
        Row("relations", lambda one: one.totals["counts"]["relations"]),
        Row("reports", lambda one: one.totals["counts"]["reports"]),
    ]
    for model, prices in PRICES.items():
        given = f"dollars, {model} ({prices[0]:.2f} in, {prices[1]:.2f} out)"
        rows.append(Row(given, _dollars(prices), _money))
    for rate in RATES:
        label = f"{rate / 1e6:.0f} M tokens a minute"
        rows.append(Row(f"calls under {label}", partial(_call_seconds, rate), duration))
        rows.append(Row("machines of 2 cores for it", partial(_machines, rate), _whole, grows=False))
    rows += [
        Row("CPU of the build", lambda one: one.whole().own_cpu_s, duration),
        Row("largest process", lambda one: largest_mb(one.whole()) * 1e6, size),
        Row("snapshot", lambda one: one.totals["snapshots_bytes"], size),
        Row("work folder", lambda one: one.totals["work_bytes"], size),
        Row("reply store", lambda one: one.totals["ledger_bytes"], size),
    ]
    return rows


def public_table(measured: Measured) -> str:
    """Return the needs of each measured size, and those of a billion tokens by the slope of the two largest ones."""
    done = {tokens: one for tokens, one in measured.items() if one.totals}
    head = ["", *(f"{count(tokens)}, measured" for tokens in done), f"{count(BILLION)} ×"]
    lines = []
    for row in public_rows():
        values = {float(one.tokens): float(row.value(one)) for one in done.values()}
        billion = extrapolated(values, BILLION) if row.grows else values[max(values)]
        lines.append([row.label, *map(row.show, values.values()), row.show(billion)])
    return _markdown(head, lines)


def stage_table(measured: Measured) -> str:
    """Return wall and CPU seconds, memory and bytes of each stage at the largest finished size, and their exponents."""
    done = {tokens: one for tokens, one in measured.items() if one.totals}
    largest = done[max(done)]
    head = [f"stage, at {count(max(done))} tokens", "wall", "CPU", "driver, worker", "store"]
    head += ["exponent: wall", "CPU", "memory", "bytes"]
    names = sorted(largest.stages, key=lambda name: -largest.stages[name].own_cpu_s)
    rows = [_stage_row(name, [one.stages.get(name, StageSum()) for one in done.values()], done) for name in names]
    rows.append(_stage_row("all", [one.whole() for one in done.values()], done))
    return _markdown(head, rows)


def _stage_row(name: str, sums: Sequence[StageSum], done: Measured) -> list[str]:
    last = sums[-1]
    sizes = [float(one.tokens) for one in done.values()]

    def grown(value: Callable[[StageSum], float]) -> str:
        if last.own_cpu_s < MIN_CPU_S:
            return ""
        found = exponent({at: value(each) for at, each in zip(sizes, sums, strict=True)})
        return "" if found is None else f"{found:.2f}"

    return [
        name,
        duration(last.wall_s),
        duration(last.own_cpu_s),
        f"{last.peak_mb['driver']:,}, {last.peak_mb['workers']:,} MB",
        size(last.sums["bytes"]),
        grown(lambda each: each.wall_s),
        grown(lambda each: each.own_cpu_s),
        grown(largest_mb),
        grown(lambda each: each.sums["bytes"]),
    ]


def service_table(measured: Measured) -> str:
    """Return the update, opening, retrieval and the service of each size."""
    head = ["", *(count(tokens) for tokens in measured)]
    rows: list[tuple[str, Callable[[MeasuredSize], str]]] = [
        ("update of 0.1 % of the documents: wall", lambda one: duration(_update(one).wall_s)),
        ("CPU", lambda one: duration(_update(one).own_cpu_s)),
        ("largest process", lambda one: size(largest_mb(_update(one)) * 1e6)),
        ("calls", lambda one: count(_update(one).sums["calls"])),
        ("opening, files cold", lambda one: f"{_way(one.query, 'open')['cold']['open_s']:.1f} s"),
        ("opening, files warm", lambda one: f"{_way(one.query, 'open')['warm']['open_s']:.2f} s"),
        ("retrieval p50 / p99, without vector search", lambda one: _percentiles(one, "without_search")),
        ("retrieval p50 / p99, all", lambda one: _percentiles(one, "total")),
        ("answers a second at saturation", lambda one: f"{_way(one.service, 'saturation')['answers_per_s']:.0f}"),
        ("p50 / p99 with 16 callers", _callers),
    ]
    return _markdown(head, [[label, *(_or_none(show, one) for one in measured.values())] for label, show in rows])


def corpus_table(measured: Measured) -> str:
    """Return the tokens of each package in the largest corpus."""
    largest = measured[max(measured)].corpus.get("packages", {})
    return _markdown(["package", "tokens"], [[name, count(tokens)] for name, tokens in largest.items() if tokens])


def largest_mb(sums: StageSum) -> float:
    """Return the most memory that one process took, in MB."""
    return float(max(sums.peak_mb["driver"], sums.peak_mb["workers"]))


def _update(one: MeasuredSize) -> StageSum:
    if not one.update_totals:
        raise LookupError
    return added(one.update.values())


def _way(lines: Iterable[Mapping[str, Any]], way: str) -> dict[str, Any]:
    return next((dict(line) for line in lines if line.get("way") == way), {})


def _percentiles(one: MeasuredSize, part: str) -> str:
    found = _way(one.query, "retrieve")["unseen"][part]
    return f"{found['p50']:.1f} / {found['p99']:.1f} ms"


def _callers(one: MeasuredSize) -> str:
    found = next(line for line in one.service if line.get("case") == "16 callers")
    return f"{found['p50_ms']:.0f} / {found['p99_ms']:.0f} ms"


def _or_none(show: Callable[[MeasuredSize], str], one: MeasuredSize) -> str:
    try:
        return show(one)
    except (LookupError, StopIteration):
        return "–"


def _money(dollars: float) -> str:
    return f"{dollars:.2g}" if dollars < 10 else count(dollars)


def _whole(number: float) -> str:
    return f"{math.ceil(number):,}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
