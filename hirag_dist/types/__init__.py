"""Small frozen records that pass between layers. Rows of data are Arrow tables (`schemas`).

Those of `arrays` need numpy, which a client of a service does not: they are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from hirag_dist.types.index_info import Facet, FieldType, IndexEntry, IndexInfo, MetadataField, MetadataValue
from hirag_dist.types.lookups import (
    DEFAULT_CHARS,
    DEFAULT_MEMBERS,
    DEFAULT_RELATIONS,
    DEFAULT_SOURCES,
    AccessScope,
    CommunityDetails,
    DocumentPart,
    EntityDetails,
    PathDetails,
    ScopeOptions,
    as_scope,
)
from hirag_dist.types.messages import (
    ChatReply,
    ChatRequest,
    FoundName,
    Message,
    RateLimits,
    Rejected,
    StoredReply,
)
from hirag_dist.types.results import (
    BY_NAME,
    BY_VECTOR,
    MAP_REDUCE,
    Answer,
    Box,
    Citation,
    ClaimItem,
    CommunityItem,
    EntityItem,
    MapWork,
    PathItem,
    Place,
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
        CsrGraph,
        FloatMatrix,
        FloatVector,
        GroupSums,
        IntVector,
        LabelledCell,
        Memberships,
        Mixture,
        Moments,
        Projection,
        WarmStart,
    )

__all__ = [
    "BY_NAME",
    "BY_VECTOR",
    "DEFAULT_CHARS",
    "DEFAULT_MEMBERS",
    "DEFAULT_RELATIONS",
    "DEFAULT_SOURCES",
    "MAP_REDUCE",
    "AccessFilter",
    "AccessScope",
    "Answer",
    "Assignment",
    "Box",
    "ChatReply",
    "ChatRequest",
    "Citation",
    "ClaimItem",
    "CommunityDetails",
    "CommunityItem",
    "CsrGraph",
    "DocumentPart",
    "EntityDetails",
    "EntityItem",
    "Facet",
    "FieldType",
    "FloatMatrix",
    "FloatVector",
    "FoundName",
    "GroupSums",
    "IndexEntry",
    "IndexInfo",
    "IntVector",
    "LabelledCell",
    "MapWork",
    "Memberships",
    "Message",
    "MetadataField",
    "MetadataValue",
    "Mixture",
    "Moments",
    "PathDetails",
    "PathItem",
    "Place",
    "Projection",
    "Query",
    "QueryOptions",
    "RateLimits",
    "Rejected",
    "Retrieval",
    "ScopeOptions",
    "SourceItem",
    "StoredReply",
    "TripleItem",
    "WarmStart",
    "as_query",
    "as_scope",
]

if not TYPE_CHECKING:  # mypy would take any name for one that exists

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module("hirag_dist.types.arrays"), name)
        globals()[name] = value
        return value
