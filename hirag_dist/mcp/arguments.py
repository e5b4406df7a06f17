"""Arguments of the tools, with the descriptions that agents read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hirag_dist.types import (
    DEFAULT_CHARS,
    DEFAULT_MEMBERS,
    DEFAULT_RELATIONS,
    DEFAULT_SOURCES,
    AccessScope,
    Query,
)

Mode = Literal["hirag", "local", "global", "bridge", "nobridge", "naive", "flat", "graphrag-local"]


class IndexArguments(BaseModel):
    """The index that a tool reads."""

    model_config = ConfigDict(extra="forbid")

    index: str = Field("", description="Name of the index; leave it out for the default one")


class ListArguments(BaseModel):
    """Part of the list of indexes."""

    model_config = ConfigDict(extra="forbid")

    contains: str = Field("", max_length=200, description="Only indexes whose name or title has this text in it")

    @property
    def index(self) -> str:
        """No index: the list is that of the service."""
        return ""


class ScopeArguments(IndexArguments):
    """The part of the index that a tool reads."""

    labels: list[str] = Field(
        default_factory=list,
        max_length=64,
        description="Labels that every document must carry, such as lang:de; never shows more than the caller may see",
    )
    filter: str = Field(
        "",
        description="Expression over metadata that every document must meet, such as published >= 2024-01-01; "
        "describe_index lists the fields",
    )
    as_of: str = Field("", description="Date, ISO 8601: only documents that are not later")

    def scope(self, required: tuple[str, ...]) -> AccessScope:
        """Return the scope, with the labels that the server requires of every document."""
        return AccessScope((*required, *self.labels), self.filter, self.as_of)


class QuestionArguments(ScopeArguments):
    """A question with the settings of its retrieval."""

    question: str = Field(description="The question, as a full sentence, in any language")
    mode: Mode | None = Field(
        None,
        description="hirag: entities, reports and the paths between them (the default) · local: entities · global: "
        "reports · bridge: paths · naive: passages only, the fastest",
    )
    top_n: int | None = Field(None, ge=1, description="Local entities at most")
    context_tokens: int | None = Field(None, ge=1, description="Length of the returned text at most, in tokens")

    def query(self, required: tuple[str, ...]) -> Query:
        """Return the query, with the labels that the server requires of every document."""
        return Query(
            self.question,
            mode=self.mode,
            top_n=self.top_n,
            context_tokens=self.context_tokens,
            labels=(*required, *self.labels),
            filter=self.filter,
            as_of=self.as_of,
        )


class SearchArguments(QuestionArguments):
    """A question, and how long the reply may be."""

    context_tokens: int = Field(4000, ge=1, description="Length of the reply at most, in tokens")


class EntityArguments(ScopeArguments):
    """An entity."""

    entity: str = Field(description="Name or id of the entity")
    max_relations: int = Field(DEFAULT_RELATIONS, ge=1, le=1000, description="Relations at most")
    max_sources: int = Field(DEFAULT_SOURCES, ge=1, le=1000, description="Passages at most")


class PathArguments(ScopeArguments):
    """Two entities."""

    source: str = Field(description="Name or id of the entity at the start")
    target: str = Field(description="Name or id of the entity at the end")


class ReportArguments(ScopeArguments):
    """A community."""

    community_id: str = Field(description="Id of the community, as search and entity return it")
    max_members: int = Field(DEFAULT_MEMBERS, ge=1, le=1000, description="Members at most")


class DocumentArguments(ScopeArguments):
    """A part of a document."""

    document_id: str = Field(description="Id of the document, or of a chunk of it")
    start: int = Field(0, ge=0, description="First character")
    max_chars: int = Field(20_000, ge=1, le=10 * DEFAULT_CHARS, description="Characters at most")
