"""Descriptions of layer 0 after a change: a model merges the long ones within the budget, others are put off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.entities.merging import CHARS_PER_TOKEN, bound_descriptions
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.groupby import blocks_of
from hirag_dist.core.key_sets import key_sets
from hirag_dist.core.prompts.templates import describe_request
from hirag_dist.core.row_changes import rows_with
from hirag_dist.core.text.ids import entity_id, text_keys
from hirag_dist.core.text.tokens import counter
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.budget import DueTexts, TextCounts, UpdateBudget, UpdateSettings, affordable
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.mentions import MergedMentions, describe_entities, described_at_once
from hirag_dist.indexing.stages.merge import MERGED, DescribeEntities, JoinDescriptions, with_descriptions
from hirag_dist.indexing.written import MODEL, STAND_IN
from hirag_dist.schemas import DESCRIPTION_DEBT, ENTITIES
from hirag_dist.types import FloatVector

DESCRIPTION_SHARE = 0.5  # maximum share of the budget's rest; summaries and reports take what remains
_BLOCK_MENTIONS = 1 << 17  # whose descriptions are in memory at a time
_NO_TEXTS: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TouchedMentions:
    """MENTIONS by the keys that they are merged by.

    Attributes:
        renamed: keys of entities that a name was resolved to, or is not any more.
    """

    now: pa.Table
    gone: pa.Table
    new: pa.Table
    renamed: frozenset[str]


@dataclass(frozen=True)
class ChangedDescriptions:
    """The entities that were merged again.

    Attributes:
        entities: ENTITIES, each with one description.
        debt: DESCRIPTION_DEBT of the whole layer, sorted by key.
        counts: Long descriptions: `written` by a model now, `kept` as right, and `deferred` in the whole layer.
    """

    entities: pa.Table
    rejects: Dataset
    debt: pa.Table
    counts: TextCounts


@dataclass(frozen=True)
class _Long:
    """An entity whose descriptions are too long to be joined.

    Attributes:
        place: its row in the base's layer; −1 for a new one.
        n_changed: texts that came or went since its description was written; all, where that cannot be kept.
        unread: keys of texts that the description does not derive from.
        sources: keys of texts that it derives from though they describe the entity no more.
        written_for: name and type that the model was told.
        is_exact: whether a model would be asked just what the description answers.
        is_kept: whether the description may stay.
        is_urgent: whether it is a model's, and derives from a text that must not be in the index.
        since: number of the update in which it became due.
    """

    key: str
    place: int
    n_changed: int
    unread: frozenset[int]
    sources: frozenset[int]
    written_for: tuple[str, str]
    is_exact: bool
    is_kept: bool
    is_urgent: bool
    since: int


def keys_to_pay(base: UpdateBase, settings: UpdateSettings) -> list[str]:
    """Return the keys of entities whose description is due since earlier updates, and is written or replaced now."""
    debt = base.table("description_debt").cast(DESCRIPTION_DEBT)
    if not debt.num_rows:
        return []
    sources = key_sets(debt["sources"])
    lost = sources.hits(settings.removed_keys)
    if settings.labelled:
        lost |= np.diff(sources.indptr) > 0
    due = DueTexts(
        lost,
        debt["stale_since"].to_numpy().astype(np.int64),
        debt["n_changed"].to_numpy().astype(np.float64),
        debt["tokens"].to_numpy().astype(np.float64),
    )
    keys: list[str] = debt["name_key"].filter(pa.array(lost | _chosen(due, settings.budget))).to_pylist()
    return keys


def describe_changed(
    context: BuildContext,
    base: UpdateBase,
    merged: MergedMentions,
    touched: TouchedMentions,
    keys: Sequence[str],
    settings: UpdateSettings,
) -> ChangedDescriptions:
    """Return entities with one description each, as a build from nothing describes them, but for those put off.

    Args:
        merged: Entities with all their descriptions.
        keys: Names of the entities that are merged again, those of entities that are gone too.
    """
    datasets = context.datasets
    join = JoinDescriptions(context.config.description_tokens, context.config.tokenizer)
    joined = context.runner.run(join, "join descriptions", entities=merged.entities)
    long = datasets.read(joined.long).sort_by("entity_id")
    owed = base.table("description_debt").cast(DESCRIPTION_DEBT)
    found = _found(base, long, touched, keys, owed, settings)
    wanted = np.flatnonzero([not each.is_exact for each in found])
    tokens = _tokens(context, long.take(pa.array(wanted)))
    due = DueTexts(
        np.array([found[at].is_urgent for at in wanted], bool),
        np.array([found[at].since for at in wanted], np.int64),
        np.array([found[at].n_changed for at in wanted], np.float64),
        tokens,
    )
    chosen = _chosen(due, settings.budget)
    paid, left = wanted[chosen], wanted[~chosen]
    described = _described(context, merged.entities, long["entity_id"].take(pa.array(paid)))
    former = base.layer_entities(0)[0]["description"]
    texts = long["description"].to_pylist()
    for at, each in enumerate(found):
        if each.is_kept:
            texts[at] = former[each.place].as_py()
    others = np.setdiff1d(np.arange(len(found)), paid)
    kept = with_descriptions(long, texts).take(pa.array(others))
    debt = _debt(owed, keys, [found[at] for at in left], tokens[~chosen])
    return ChangedDescriptions(
        pa.concat_tables(
            [datasets.read(joined.entities), datasets.read(described.entities), kept.select(ENTITIES.names)]
        ),
        described.rejects,
        debt,
        TextCounts(
            written=len(paid) - described.rejects.rows,
            kept=len(found) - len(wanted),
            deferred=debt.num_rows,
            stand_ins=pc.sum(pc.equal(debt["origin"], STAND_IN)).as_py() or 0,
            deferred_tokens=pc.sum(debt["tokens"]).as_py() or 0,
        ),
    )


def _described(context: BuildContext, merged: Dataset, ids: pa.ChunkedArray) -> DescribeEntities.Outputs:
    """Return some entities with a model's description, and dead letters; a piece of `merged` is in memory at a time."""
    datasets, asked = context.datasets, Dataset(ENTITIES)
    for piece in datasets.tables(merged):
        own = piece.filter(pc.is_in(piece["entity_id"], value_set=ids.combine_chunks()))
        if own.num_rows:
            asked += datasets.put("due_descriptions", own.cast(ENTITIES))
    return describe_entities(context, asked, context.runner.run_tolerant)


def _chosen(due: DueTexts, budget: UpdateBudget) -> NDArray[np.bool_]:
    """Return (n,) which descriptions the budget pays. One that it could not pay alone holds up none behind it."""
    allowance = budget.left * DESCRIPTION_SHARE if np.isfinite(budget.left) else np.inf
    chosen = due.tokens <= allowance
    fit = np.flatnonzero(chosen)
    chosen[fit] = affordable(DueTexts(due.urgent[fit], due.since[fit], due.weight[fit], due.tokens[fit]), allowance)
    return chosen


def _found(
    base: UpdateBase,
    long: pa.Table,
    touched: TouchedMentions,
    keys: Sequence[str],
    owed: pa.Table,
    settings: UpdateSettings,
) -> list[_Long]:
    """Return what is known of the description of each entity; `owed` is DESCRIPTION_DEBT of the base."""
    key_of = {entity_id(0, key): key for key in keys}
    own = [key_of[one] for one in long["entity_id"].to_pylist()]
    refused = pa.concat_tables(base.table(name).select(["stage", "unit_id"]) for name in ("rejects", "dropped"))
    refused = refused.filter(pc.equal(refused["stage"], DescribeEntities.name))
    is_refused = pc.is_in(long["entity_id"], value_set=refused["unit_id"].combine_chunks()).to_pylist()
    former = base.layer_entities(0)[0]
    places = rows_of(long["entity_id"], former["entity_id"])
    names = [*zip(*(long[name].to_pylist() for name in ("name", "type")), strict=True)]
    rows = {row["name_key"]: row for row in _of_keys(owed, own).to_pylist()}
    removed = set(settings.removed_keys.tolist())
    found = []
    for first, end in blocks_of(long["n_mentions"].to_numpy(), _BLOCK_MENTIONS):
        now, before = _texts(touched, own[first:end])
        for at in range(first, end):
            key, place, row = own[at], int(places[at]), rows.get(own[at])
            if row is None:
                was = names[at] if place < 0 else tuple(former[name][place].as_py() for name in ("name", "type"))
                row = {"origin": MODEL, "unread": (), "sources": (), "stale_since": settings.number}
                row |= {"name": was[0], "type": was[1]}
            texts, came, went = now[key], now[key] - before[key], before[key] - now[key]
            unread = (came - {*row["sources"]} | {*row["unread"]}) & texts
            sources = (went - {*row["unread"]} | {*row["sources"]}) - texts
            is_written = place >= 0 and row["origin"] == MODEL and not is_refused[at] and key not in touched.renamed
            is_kept = is_written and not (sources & removed or (settings.labelled and sources))
            written_for = (row["name"], row["type"])
            found.append(
                _Long(
                    key,
                    place,
                    len(unread) + len(sources) if is_kept else len(texts),
                    frozenset(unread) if is_kept else _NO_TEXTS,
                    frozenset(sources) if is_kept else _NO_TEXTS,
                    written_for,
                    is_kept and not unread and not sources and written_for == names[at],
                    is_kept,
                    is_written and not is_kept,
                    row["stale_since"],
                )
            )
    return found


def _texts(touched: TouchedMentions, keys: Sequence[str]) -> tuple[Mapping[str, set[int]], Mapping[str, set[int]]]:
    """Return the keys of the texts that each of some entities is described from, now and in the base."""
    now, new = _of_keys(touched.now, keys), _of_keys(touched.new, keys)
    stayed = now.filter(pc.invert(pc.is_in(now["chunk_id"], value_set=pc.unique(new["chunk_id"]))))
    return _merged_texts(now), _merged_texts(pa.concat_tables([stayed, _of_keys(touched.gone, keys)]))


def _merged_texts(mentions: pa.Table) -> Mapping[str, set[int]]:
    """Return the keys of the texts whose descriptions are merged, by the key of their entity."""
    own, _ = bound_descriptions(mentions, ("name_key",), MERGED)
    own = own.filter(pc.and_(own["described"], pc.not_equal(own["description"], "")))
    found = defaultdict[str, set[int]](set)
    for key, text in zip(own["name_key"].to_pylist(), text_keys(own["chunk_id"]).tolist(), strict=True):
        found[key].add(text)
    return found


def _of_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows of some names."""
    return table.filter(pc.is_in(table["name_key"], value_set=pa.array(keys, pa.string())))


def _tokens(context: BuildContext, long: pa.Table) -> FloatVector:
    """Return the tokens that merging the descriptions of each entity costs, about."""
    prompts, limit = context.prompts.of("describe"), context.config.description_tokens
    request = describe_request("", "", [], prompts, 1)
    each = limit // 2 + sum(map(counter(context.config.tokenizer), (message.content for message in request.messages)))
    read = long["n_bytes"].to_numpy() / CHARS_PER_TOKEN + 2 * long["n_descriptions"].to_numpy()
    calls = np.ceil(read / described_at_once(context, prompts))
    again = np.where(calls > 1, calls * limit / 2 + each, 0.0)
    tokens: FloatVector = read + calls * each + again
    return tokens


def _debt(owed: pa.Table, keys: Sequence[str], put_off: Sequence[_Long], tokens: FloatVector) -> pa.Table:
    """Return DESCRIPTION_DEBT after the update."""
    others = np.setdiff1d(np.arange(owed.num_rows), rows_with(owed["name_key"], pa.array(keys, pa.string())))
    rows: list[dict[str, Any]] = [
        {
            "name_key": each.key,
            "origin": MODEL if each.is_kept else STAND_IN,
            "name": each.written_for[0],
            "type": each.written_for[1],
            "unread": sorted(each.unread),
            "sources": sorted(each.sources),
            "n_changed": each.n_changed,
            "stale_since": each.since,
            "tokens": int(cost),
        }
        for each, cost in zip(put_off, tokens, strict=True)
    ]
    new = pa.Table.from_pylist(rows, DESCRIPTION_DEBT)
    return pa.concat_tables([owed.take(pa.array(others)), new]).sort_by("name_key").combine_chunks()
