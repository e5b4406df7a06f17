"""Small frozen records that pass between layers. Rows of data are Arrow tables (`schemas`).

Those of `arrays` need numpy, which a client of a service does not: they are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from hirag_dist.types.messages import (
    ChatReply,
    ChatRequest,
    Message,
    RateLimits,
    Rejected,
    StoredReply,
)
from hirag_dist.types.places import Box, Place
from hirag_dist.types.results import (
    MAP_REDUCE,
    Answer,
    Citation,
    ClaimItem,
    CommunityItem,
    EntityItem,
    Facet,
    IndexInfo,
    MapWork,
    MetadataValue,
    PathItem,
    Query,
    QueryOptions,
    Retrieval,
    SourceItem,
    TripleItem,
    as_query,
)

if TYPE_CHECKING:
    from hirag_dist.types.arrays import (
        AccessFilter,
        Assignment,
        Covariance,
        CsrGraph,
        FloatMatrix,
        FloatVector,
        IntVector,
        Mixture,
        MixtureStatistics,
        Moments,
        Projection,
        WarmStart,
    )

__all__ = [
    "MAP_REDUCE",
    "AccessFilter",
    "Answer",
    "Assignment",
    "Box",
    "ChatReply",
    "ChatRequest",
    "Citation",
    "ClaimItem",
    "CommunityItem",
    "Covariance",
    "CsrGraph",
    "EntityItem",
    "Facet",
    "FloatMatrix",
    "FloatVector",
    "IndexInfo",
    "IntVector",
    "MapWork",
    "Message",
    "MetadataValue",
    "Mixture",
    "MixtureStatistics",
    "Moments",
    "PathItem",
    "Place",
    "Projection",
    "Query",
    "QueryOptions",
    "RateLimits",
    "Rejected",
    "Retrieval",
    "SourceItem",
    "StoredReply",
    "TripleItem",
    "WarmStart",
    "as_query",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("hirag_dist.types.arrays"), name)
    globals()[name] = value
    return value
