"""Settings of a retriever: which records it returns, and how it asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from hirag_dist.integrations.documents import Level, RetrievedDocument, check_levels, documents_of
from hirag_dist.integrations.retrieval_source import RetrievalSource
from hirag_dist.types import Query, Retrieval


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverSettings:
    """Settings of a retriever. None and empty values take the default of the service or of the open index.

    Attributes:
        k: documents of each level at most; None for all that the retrieval has.
        levels: local (entities), global (community reports), bridge (paths), sources (chunks), in this order.
        mode, top_n, top_m, top_c, community_level, context_tokens, labels, filter, as_of, vector, reach: as in `Query`;
            `reach` with an open index only, since a service decides by the token.
        index: name of the index in a service with several.
        token: bearer token of the calls, instead of the client's.
        timeout_s: seconds for a call.

    Raises:
        ValueError: `k` is below 1, or a level does not exist.
    """

    k: int | None = None
    levels: tuple[Level, ...] = ("sources",)
    mode: str | None = None
    top_n: int | None = None
    top_m: int | None = None
    top_c: int | None = None
    community_level: str | None = None
    context_tokens: int | None = None
    labels: tuple[str, ...] = ()
    filter: str = ""
    as_of: str = ""
    vector: Any = field(default=None, repr=False)
    reach: frozenset[str] | None = None
    index: str = ""
    token: str | None = field(default=None, repr=False)
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        check_levels(self.levels)
        if self.k is not None and self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    def merged(self, overrides: Mapping[str, Any]) -> RetrieverSettings:
        """Return the settings with some replaced.

        Raises:
            TypeError: a setting does not exist.
            ValueError: a value is out of bounds.
        """
        for name in overrides:
            if name not in SETTINGS:
                near = get_close_matches(name, SETTINGS, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(SETTINGS)}"
                raise TypeError(f"a retriever has no setting {name!r}; {hint}")
        given: dict[str, Any] = {name: _tuple(one) if name in _TUPLES else one for name, one in overrides.items()}
        return replace(self, **given)

    def query(self, question: str) -> Query:
        """Return the query for a question."""
        return Query(question, **{name: getattr(self, name) for name in _OF_QUERY})

    def arguments(self, connection: RetrievalSource) -> dict[str, Any]:
        """Return the keyword arguments of a call.

        Raises:
            ValueError: a setting of a service is given for an open index, or the other way round.
        """
        if not connection.is_service:
            for name in ("index", "token"):
                if getattr(self, name):
                    raise ValueError(f"{name} is a setting for a service; the source is an open index")
            return {"timeout_s": self.timeout_s}
        if self.reach is not None:
            raise ValueError("reach is a setting for an open index; a service decides by the caller's token")
        given: dict[str, Any] = {"omit_context": True, "omit_source_text": "sources" not in self.levels}
        return given | {name: value for name in ("index", "token", "timeout_s") if (value := getattr(self, name))}

    def documents(self, retrieval: Retrieval) -> list[RetrievedDocument]:
        """Return the documents of a retrieval."""
        return documents_of(retrieval, self.levels, self.k)


SETTINGS: tuple[str, ...] = tuple(one.name for one in fields(RetrieverSettings))
_TUPLES = ("levels", "labels")
_OF_QUERY = tuple(one.name for one in fields(Query) if one.name in SETTINGS)


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
