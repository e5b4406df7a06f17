"""Distributed retrieval-augmented generation with hierarchical knowledge (HiRAG, arXiv 2503.10150).

Build an index, open it, ask:

    import hirag_dist as hd

    hd.build_index("my-docs/", "my-index")
    with hd.open_index("my-index") as index:
        print(index.answer("What ties the two projects together?"))

The names of `__all__` are the public API; they are imported when they are first used.
"""

from importlib import import_module

from hirag_dist._version import __version__

TYPE_CHECKING = False  # as of typing, which is not imported: Ctrl-C works only once the command line has begun

if TYPE_CHECKING:
    from hirag_dist.api import load_config
    from hirag_dist.api.build import (
        add_documents,
        build_index,
        plan_build,
        plan_reembedding,
        reembed_index,
        refresh_index,
        remove_documents,
    )
    from hirag_dist.api.index import AsyncIndex, Index, open_index, open_index_async
    from hirag_dist.application.index_result import IndexResult
    from hirag_dist.client import AsyncHiragClient, HiragClient
    from hirag_dist.config.model import Config
    from hirag_dist.errors import (
        BackendUnavailable,
        BudgetReached,
        ConfigError,
        HiragError,
        IndexBusy,
        InputError,
        InvalidQuery,
        ModelError,
        NotFound,
        ServiceError,
        SnapshotError,
        SnapshotNotFound,
        StageFailed,
    )
    from hirag_dist.indexing.budget import UpdateSummary
    from hirag_dist.indexing.estimate import CostEstimate
    from hirag_dist.indexing.reembed import ReembeddingEstimate
    from hirag_dist.types import (
        Answer,
        Citation,
        CommunityDetails,
        DocumentPart,
        EntityDetails,
        IndexInfo,
        PathDetails,
        Query,
        Retrieval,
    )

_MODULES = {
    "hirag_dist.api.build": (
        "add_documents",
        "build_index",
        "plan_build",
        "plan_reembedding",
        "reembed_index",
        "refresh_index",
        "remove_documents",
    ),
    "hirag_dist.api": ("load_config",),
    "hirag_dist.api.index": ("AsyncIndex", "Index", "open_index", "open_index_async"),
    "hirag_dist.client": ("AsyncHiragClient", "HiragClient"),
    "hirag_dist.application.index_result": ("IndexResult",),
    "hirag_dist.config.model": ("Config",),
    "hirag_dist.errors": (
        "BackendUnavailable",
        "BudgetReached",
        "ConfigError",
        "HiragError",
        "IndexBusy",
        "InputError",
        "InvalidQuery",
        "ModelError",
        "NotFound",
        "ServiceError",
        "SnapshotError",
        "SnapshotNotFound",
        "StageFailed",
    ),
    "hirag_dist.indexing.estimate": ("CostEstimate",),
    "hirag_dist.indexing.reembed": ("ReembeddingEstimate",),
    "hirag_dist.indexing.budget": ("UpdateSummary",),
    "hirag_dist.types": (
        "Answer",
        "Citation",
        "CommunityDetails",
        "DocumentPart",
        "EntityDetails",
        "IndexInfo",
        "PathDetails",
        "Query",
        "Retrieval",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Answer",
    "AsyncHiragClient",
    "AsyncIndex",
    "BackendUnavailable",
    "BudgetReached",
    "Citation",
    "CommunityDetails",
    "Config",
    "ConfigError",
    "CostEstimate",
    "DocumentPart",
    "EntityDetails",
    "HiragClient",
    "HiragError",
    "Index",
    "IndexBusy",
    "IndexInfo",
    "IndexResult",
    "InputError",
    "InvalidQuery",
    "ModelError",
    "NotFound",
    "PathDetails",
    "Query",
    "ReembeddingEstimate",
    "Retrieval",
    "ServiceError",
    "SnapshotError",
    "SnapshotNotFound",
    "StageFailed",
    "UpdateSummary",
    "__version__",
    "add_documents",
    "build_index",
    "load_config",
    "open_index",
    "open_index_async",
    "plan_build",
    "plan_reembedding",
    "reembed_index",
    "refresh_index",
    "remove_documents",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_MODULE_OF[name])
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(f"{__name__}."):
            raise
        raise ImportError(f"hirag-dist-client has no {__name__}.{name}; `pip install hirag-dist` has it") from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
