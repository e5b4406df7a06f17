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

from hirag_dist.core.entities.merging import CHARS_PER_TOKEN, SEPARATOR, join_descriptions
from hirag_dist.core.entities.summaries import split_descriptions
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import key_sets
from hirag_dist.core.prompts.templates import describe_request
from hirag_dist.core.row_changes import rows_with
from hirag_dist.core.text.ids import entity_id, text_keys
from hirag_dist.core.text.tokens import counter
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.budget import DueTexts, UpdateBudget, UpdateSettings, affordable
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.mentions import describe_entities, described_at_once
from hirag_dist.indexing.stages.merge import DescribeEntities, is_short
from hirag_dist.indexing.update_summary import TextCounts
from hirag_dist.indexing.written import MODEL, STAND_IN
from hirag_dist.schemas import DESCRIPTION_DEBT
from hirag_dist.types import FloatVector

DESCRIPTION_SHARE = 0.5  # of what is left of the budget, at most: summaries and reports take the rest
NAMED = ("name_key", "chunk_id", "described")
_NO_TEXTS: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TouchedMentions:
    """The columns NAMED of MENTIONS, by the keys that they are merged by.

    Attributes:
        now: all of the entities that are merged again.
        gone, new: those that went and came.
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
        counts: written: by a model now; kept: long ones that were right as they were; deferred: of the whole layer.
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
        texts: number of texts that describe it.
        unread: keys of texts that the base's description does not derive from.
        sources: keys of texts that it derives from though they describe the entity no more.
        is_exact: whether a model would be asked just what the base's description answers.
        is_kept: whether the base's description may stay.
        is_urgent: whether the base's description must not stay.
        since: number of the update in which it became due.
    """

    key: str
    place: int
    texts: int
    unread: frozenset[int]
    sources: frozenset[int]
    is_exact: bool
    is_kept: bool
    is_urgent: bool
    since: int

    @property
    def weight(self) -> int:
        """Texts that came or went since it was written; of a stand-in, all."""
        return len(self.unread) + len(self.sources) if self.is_kept else self.texts


def keys_to_pay(base: UpdateBase, budget: UpdateBudget, settings: UpdateSettings) -> list[str]:
    """Return the keys of entities whose description is due since earlier updates, and is written or replaced now."""
    debt = base.table("description_debt").cast(DESCRIPTION_DEBT)
    if not debt.num_rows:
        return []
    keys = debt["name_key"].to_pylist()
    before = base.layer_entities(0)[0]
    ids = pa.array([entity_id(0, key) for key in keys], pa.string())
    places = rows_of(pa.chunked_array([ids]), before["entity_id"])
    texts = pc.list_value_length(before["chunk_ids"].take(pa.array(np.maximum(places, 0)))).to_numpy()
    n_changed = sum(pc.list_value_length(debt[name]).to_numpy() for name in ("unread", "sources"))
    sources = key_sets(debt["sources"])
    lost = sources.hits(settings.removed_keys)
    if settings.labelled:
        lost |= np.diff(sources.indptr) > 0
    is_stand_in = pc.equal(debt["origin"], STAND_IN).to_numpy(zero_copy_only=False)
    due = DueTexts(
        lost,
        debt["stale_since"].to_numpy().astype(np.int64),
        np.where(is_stand_in, texts, n_changed).astype(np.float64),
        debt["tokens"].to_numpy().astype(np.float64),
    )
    return [keys[at] for at in np.flatnonzero(lost | _chosen(due, budget)).tolist()]


def describe_changed(
    context: BuildContext,
    base: UpdateBase,
    merged: Dataset,
    touched: TouchedMentions,
    keys: Sequence[str],
    budget: UpdateBudget,
    settings: UpdateSettings,
) -> ChangedDescriptions:
    """Return entities with one description each, as a build from nothing describes them, but for those put off.

    Args:
        merged: ENTITIES with all their descriptions, one a line.
        keys: of the entities that are merged again, those that are gone too.
    """
    config, datasets = context.config, context.datasets
    limit, count = config.description_tokens, counter(config.tokenizer)
    entities = datasets.read(merged).combine_chunks()
    texts = entities["description"]  # one of them can have 200,000 characters
    long = [at for at, text in enumerate(texts) if not is_short(split_descriptions(text.as_py()), limit, count)]
    owed = base.table("description_debt").cast(DESCRIPTION_DEBT)
    found = _found(base, entities.take(pa.array(long, pa.int64())), touched, keys, owed, settings)
    wanted = [at for at, each in enumerate(found) if not each.is_exact]
    tokens = _tokens(context, texts.take(pa.array([long[at] for at in wanted], pa.int64())))
    due = DueTexts(
        np.array([found[at].is_urgent for at in wanted], bool),
        np.array([found[at].since for at in wanted], np.int64),
        np.array([found[at].weight for at in wanted], np.float64),
        tokens,
    )
    left = np.flatnonzero(~_chosen(due, budget))
    put_off = [wanted[at] for at in left]
    former = base.layer_entities(0)[0]["description"]
    given = {long[at]: former[each.place].as_py() for at, each in enumerate(found) if each.is_exact}
    for at in put_off:
        joined = join_descriptions(split_descriptions(texts[long[at]].as_py()), limit * CHARS_PER_TOKEN)
        given[long[at]] = former[found[at].place].as_py() if found[at].is_kept else joined
    others = np.setdiff1d(np.arange(len(texts)), list(given))
    described = describe_entities(context, datasets.put("long_entities", entities.take(pa.array(others))), "describe")
    kept = entities.take(pa.array(list(given), pa.int64()))
    column = kept.schema.get_field_index("description")
    kept = kept.set_column(column, kept.schema.field(column), pa.array(given.values(), pa.string()))
    debt = _debt(owed, keys, [found[at] for at in put_off], tokens[left])
    return ChangedDescriptions(
        pa.concat_tables([datasets.read(described.entities), kept]),
        described.rejects,
        debt,
        TextCounts(
            written=len(wanted) - len(put_off) - described.rejects.rows,
            kept=len(found) - len(wanted),
            deferred=debt.num_rows,
            stand_ins=pc.sum(pc.equal(debt["origin"], STAND_IN)).as_py() or 0,
            deferred_tokens=pc.sum(debt["tokens"]).as_py() or 0,
        ),
    )


def _chosen(due: DueTexts, budget: UpdateBudget) -> NDArray[np.bool_]:
    """Return (n,) which descriptions the budget pays. One that it could not pay alone holds up none behind it."""
    allowance = budget.left * DESCRIPTION_SHARE if np.isfinite(budget.left) else np.inf
    chosen = due.tokens <= allowance
    one = np.flatnonzero(chosen)
    chosen[one] = affordable(DueTexts(due.urgent[one], due.since[one], due.weight[one], due.tokens[one]), allowance)
    return chosen


def _found(
    base: UpdateBase,
    entities: pa.Table,
    touched: TouchedMentions,
    keys: Sequence[str],
    owed: pa.Table,
    settings: UpdateSettings,
) -> list[_Long]:
    """Return what is known of the description of each entity.

    Args:
        entities: ENTITIES whose descriptions are too long to be joined.
        owed: DESCRIPTION_DEBT of the base.
    """
    ids = entities["entity_id"].to_pylist()
    key_of = {entity_id(0, key): key for key in keys}
    own = [key_of[one] for one in ids]
    former = base.layer_entities(0)[0]
    places = rows_of(entities["entity_id"], former["entity_id"])
    refused = set[str]()
    for letters in (base.table("rejects"), base.table("dropped")):
        refused.update(letters.filter(pc.equal(letters["stage"], DescribeEntities.name))["unit_id"].to_pylist())
    due_before = owed.filter(pc.is_in(owed["name_key"], value_set=pa.array(own, pa.string())))
    rows = {row["name_key"]: row for row in due_before.to_pylist()}
    is_new = pc.is_in(touched.now["chunk_id"], value_set=pc.unique(touched.new["chunk_id"]))
    stayed = _texts(touched.now.filter(pc.invert(is_new)), own)
    new, gone = _texts(touched.new, own), _texts(touched.gone, own)
    removed = set(settings.removed_keys.tolist())
    shown = ("name", "type")
    now = list(zip(*(entities[name].to_pylist() for name in shown), strict=True))
    found = []
    for key, one, place, is_named in zip(own, ids, places.tolist(), now, strict=True):
        row = rows.get(key, {"origin": MODEL, "unread": (), "sources": (), "stale_since": settings.number})
        texts = stayed[key] | new[key]
        came, went = texts - (stayed[key] | gone[key]), gone[key] - texts
        unread = (came - {*row["sources"]} | {*row["unread"]}) & texts
        sources = (went - {*row["unread"]} | {*row["sources"]}) - texts
        is_written = place >= 0 and row["origin"] == MODEL and one not in refused and key not in touched.renamed
        is_kept = is_written and not (sources & removed or (settings.labelled and sources))
        is_same = is_kept and not unread and not sources
        is_same = is_same and tuple(former[name][place].as_py() for name in shown) == is_named
        is_same = is_same and (key not in rows or bool(row["unread"] or row["sources"]))
        found.append(
            _Long(
                key,
                place,
                len(texts),
                frozenset(unread) if is_kept else _NO_TEXTS,
                frozenset(sources) if is_kept else _NO_TEXTS,
                is_same,
                is_kept,
                is_written and not is_kept,
                row["stale_since"],
            )
        )
    return found


def _texts(mentions: pa.Table, keys: Sequence[str]) -> Mapping[str, set[int]]:
    """Return the keys of the texts that describe each of some entities."""
    own = mentions.filter(pc.is_in(mentions["name_key"], value_set=pa.array(keys, pa.string())))
    own = own.filter(own["described"])
    found = defaultdict[str, set[int]](set)
    for key, text in zip(own["name_key"].to_pylist(), text_keys(own["chunk_id"]).tolist(), strict=True):
        found[key].add(text)
    return found


def _tokens(context: BuildContext, texts: pa.ChunkedArray) -> FloatVector:
    """Return the tokens that merging the descriptions of each entity costs, about.

    Args:
        texts: descriptions of each entity, one a line.
    """
    prompts, limit = context.prompts.of("describe"), context.config.description_tokens
    at_once = described_at_once(context, prompts)
    request = describe_request("", "", [], prompts, 1)
    each = limit // 2 + sum(map(counter(context.config.tokenizer), (message.content for message in request.messages)))
    pieces = pc.add(pc.count_substring(texts, SEPARATOR), 1).to_numpy()
    read = pc.binary_length(texts).to_numpy() / CHARS_PER_TOKEN + 2 * pieces
    calls = np.ceil(read / at_once)
    again = np.where(calls > 1, calls * limit / 2 + each, 0.0)
    tokens: FloatVector = read + calls * each + again
    return tokens


def _debt(owed: pa.Table, keys: Sequence[str], put_off: Sequence[_Long], tokens: FloatVector) -> pa.Table:
    """Return DESCRIPTION_DEBT after the update.

    Args:
        owed: that of the base.
        keys: of the entities that were merged again.
    """
    others = np.setdiff1d(np.arange(owed.num_rows), rows_with(owed["name_key"], pa.array(keys, pa.string())))
    rows: list[dict[str, Any]] = [
        {
            "name_key": each.key,
            "origin": MODEL if each.is_kept else STAND_IN,
            "unread": sorted(each.unread),
            "sources": sorted(each.sources),
            "stale_since": each.since,
            "tokens": int(cost),
        }
        for each, cost in zip(put_off, tokens, strict=True)
    ]
    new = pa.Table.from_pylist(rows, DESCRIPTION_DEBT)
    return pa.concat_tables([owed.take(pa.array(others)), new]).sort_by("name_key").combine_chunks()
