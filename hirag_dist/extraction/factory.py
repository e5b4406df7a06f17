"""Entity finders by name."""

from __future__ import annotations

from hirag_dist.extraction.builtin import BuiltinFinder
from hirag_dist.protocols import EntityFinder
from hirag_dist.types import FinderOptions


def make_entity_finder(options: FinderOptions) -> EntityFinder:
    """Return the finder of an option.

    Raises:
        BackendUnavailable: its package or its model is missing.
    """
    if options.kind == "gliner":
        from hirag_dist.extraction.gliner import GlinerFinder, load_gliner

        return GlinerFinder(load_gliner(options), options.threshold)
    return BuiltinFinder()
