"""Entities by id or name, as a caller may see them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from hirag_dist.core.access import Flags, visible_rows
from hirag_dist.core.retrieval.entity_linking import (
    found_names,
    longest_phrases,
    rows_of,
    similar_names,
    spelled_words,
    words,
)
from hirag_dist.core.text.ids import entity_id
from hirag_dist.core.text.normalize import name_key, one_line
from hirag_dist.errors import NotFound
from hirag_dist.retrieval.lookup.tables import LookupTables
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import IntVector

_MAX_CLOSEST = 3  # names in a message
_MAX_LONGER = 1000  # entities whose names are compared by their words
_MAX_SHOWN = 80  # characters of what was asked for, in a message


def find_entity(
    view: MappedIndex | None, tables: LookupTables, wanted: str, argument: str = "entity"
) -> tuple[MappedIndex, int, str]:
    """Return the view, the row of an entity in it, and a note where the name is not all of the entity's.

    Args:
        view: the index as the caller may see it; None where no document is visible.
        wanted: id, or a name that the caller may see. Of several entities with the name, the one of the lowest layer
            is returned: the one whose name is spelled so before others, and an alias last. Without one, the only
            extracted entity whose name has these words is returned.
        argument: name of the caller's argument with the id or name, for the message of an error.

    Raises:
        NotFound: the caller may see no such entity.
    """
    if view is None:
        raise NotFound(_not_found(argument, wanted, []))
    row = tables.row("entities", wanted)
    if row is not None and is_visible(view, row):
        return view, row, ""
    candidates = _named_rows(view, tables, wanted)
    if candidates:
        return view, min(candidates)[-1], ""
    longer = longer_names(view, wanted)
    if len(longer) == 1:
        ((row, name),) = longer
        note = f"No entity is named {short(wanted)}; {short(name)} is the only one whose name has these words."
        return view, row, note
    closest = [*(name for _, name in longer), *closest_names(view, wanted)]
    raise NotFound(_not_found(argument, wanted, list(dict.fromkeys(closest))[:_MAX_CLOSEST]))


def longer_names(view: MappedIndex, wanted: str) -> list[tuple[int, str]]:
    """Return (row, name) of the visible extracted entities whose names have some words in this order, shortest first.

    At most `_MAX_LONGER` entities that have the longest of these words are looked at.
    """
    read, spelled = words(wanted), spelled_words(wanted)
    if not read:
        return []
    rows = view.files.entities.holding("name", max(spelled or read, key=len))
    rows = rows[view.layers[rows] == 0]
    rows = rows[visible(view, rows)][:_MAX_LONGER]
    shown = view.named(rows.tolist())[1]
    found = []
    for row, name in shown.items():
        spelling = words(name)
        if any(spelling[at : at + len(read)] == read for at in range(len(spelling) - len(read) + 1)):
            found.append((row, name))
    return sorted(found, key=lambda item: (len(words(item[1])), item))


def closest_names(view: MappedIndex, wanted: str) -> list[str]:
    """Return some visible names of extracted entities that differ by a letter, then some that are part of a name."""
    read, names = words(wanted), view.files.entity_names
    admits = None if view.access is None else partial(visible_rows, view.access)
    similar = similar_names(names, read, admits)
    shown = view.named([row for row, _ in similar])[1]
    found = [shown[row] for row, spelled in similar if words(shown[row]) == spelled]
    phrases = found_names(names, read, admits)
    shown = view.named({phrase.row for phrase in phrases})[1]
    parts = [phrase for phrase in phrases if words(shown[phrase.row]) == read[phrase.start : phrase.end]]
    return found + [shown[row] for row in rows_of(longest_phrases(parts))]


def is_visible(view: MappedIndex, row: int) -> bool:
    """Return whether the caller may see an entity, fully or in part."""
    return bool(visible(view, np.array([row]))[0])


def visible(view: MappedIndex, rows: IntVector) -> Flags:
    """Return flags of the entities that the caller may see, fully or in part: (n,)."""
    return np.ones(len(rows), np.bool_) if view.access is None else visible_rows(view.access, rows)


def short(text: str) -> str:
    """Return an id or a name as a message quotes it."""
    line = one_line(text)
    return repr(line if len(line) <= _MAX_SHOWN else line[:_MAX_SHOWN] + "…")


def _named_rows(view: MappedIndex, tables: LookupTables, wanted: str) -> list[tuple[int, bool, bool, int]]:
    """Return (layer, whether it is an alias, whether it is spelled otherwise, row) of the entities of a name."""
    key, read = name_key(wanted), words(wanted)
    layers = range(int(view.layers[-1:].max(initial=-1)) + 1)
    by_id = (tables.row("entities", entity_id(layer, key)) for layer in layers)  # an id is a hash of layer and name
    rows = {row for row in by_id if row is not None and is_visible(view, row)}
    admits = None if view.access is None else partial(visible_rows, view.access)
    whole = (0, len(read))
    rows |= {one.row for one in found_names(view.files.entity_names, read, admits) if one[:2] == whole}
    shown = view.named(rows)[1]
    # The name that counts is the one that the caller may see: others of the same entity may come from hidden documents.
    named = {row for row in rows if name_key(shown[row]) == key or (read and words(shown[row]) == read)}
    found = [(int(view.layers[row]), False, shown[row] != wanted, row) for row in named]
    if view.files.aliases is not None:
        others = {one.row for one in found_names(view.files.aliases, read, admits) if one[:2] == whole} - named
        rows_of_others = np.array(sorted(others), np.int64)
        stored = rows_of_others[~view.rebuilt("local", rows_of_others)].tolist()
        found += [(int(view.layers[row]), True, True, row) for row in stored]
    return found


def _not_found(argument: str, wanted: str, closest: Iterable[str]) -> str:
    names = ", ".join(map(short, closest))
    hint = f"the closest names: {names}" if names else "a search for it shows names and ids of entities"
    return f"{argument}: none that this caller may see has the id or name {short(wanted)}; {hint}"
