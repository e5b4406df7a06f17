from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_HIRAG: _ClassVar[Mode]
    MODE_LOCAL: _ClassVar[Mode]
    MODE_GLOBAL: _ClassVar[Mode]
    MODE_BRIDGE: _ClassVar[Mode]
    MODE_NOBRIDGE: _ClassVar[Mode]
    MODE_NAIVE: _ClassVar[Mode]
    MODE_FLAT: _ClassVar[Mode]
    MODE_GRAPHRAG_LOCAL: _ClassVar[Mode]
    MODE_GRAPHRAG_GLOBAL: _ClassVar[Mode]
    MODE_TEXT_MAP_REDUCE: _ClassVar[Mode]

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_UNSPECIFIED: _ClassVar[Level]
    LEVEL_LOCAL: _ClassVar[Level]
    LEVEL_GLOBAL: _ClassVar[Level]
    LEVEL_BRIDGE: _ClassVar[Level]
    LEVEL_SOURCES: _ClassVar[Level]
    LEVEL_DONE: _ClassVar[Level]

class FieldType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIELD_TYPE_UNSPECIFIED: _ClassVar[FieldType]
    FIELD_TYPE_STRING: _ClassVar[FieldType]
    FIELD_TYPE_NUMBER: _ClassVar[FieldType]
    FIELD_TYPE_DATE: _ClassVar[FieldType]
    FIELD_TYPE_BOOL: _ClassVar[FieldType]
MODE_UNSPECIFIED: Mode
MODE_HIRAG: Mode
MODE_LOCAL: Mode
MODE_GLOBAL: Mode
MODE_BRIDGE: Mode
MODE_NOBRIDGE: Mode
MODE_NAIVE: Mode
MODE_FLAT: Mode
MODE_GRAPHRAG_LOCAL: Mode
MODE_GRAPHRAG_GLOBAL: Mode
MODE_TEXT_MAP_REDUCE: Mode
LEVEL_UNSPECIFIED: Level
LEVEL_LOCAL: Level
LEVEL_GLOBAL: Level
LEVEL_BRIDGE: Level
LEVEL_SOURCES: Level
LEVEL_DONE: Level
FIELD_TYPE_UNSPECIFIED: FieldType
FIELD_TYPE_STRING: FieldType
FIELD_TYPE_NUMBER: FieldType
FIELD_TYPE_DATE: FieldType
FIELD_TYPE_BOOL: FieldType

class Query(_message.Message):
    __slots__ = ("question", "mode", "top_n", "top_m", "top_c", "community_level", "context_tokens", "vector", "labels", "filter", "as_of")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    TOP_M_FIELD_NUMBER: _ClassVar[int]
    TOP_C_FIELD_NUMBER: _ClassVar[int]
    COMMUNITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    question: str
    mode: Mode
    top_n: int
    top_m: int
    top_c: int
    community_level: str
    context_tokens: int
    vector: _containers.RepeatedScalarFieldContainer[float]
    labels: _containers.RepeatedScalarFieldContainer[str]
    filter: str
    as_of: str
    def __init__(self, question: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., top_n: _Optional[int] = ..., top_m: _Optional[int] = ..., top_c: _Optional[int] = ..., community_level: _Optional[str] = ..., context_tokens: _Optional[int] = ..., vector: _Optional[_Iterable[float]] = ..., labels: _Optional[_Iterable[str]] = ..., filter: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class RetrieveRequest(_message.Message):
    __slots__ = ("query", "omit_context", "omit_source_text", "index")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    OMIT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OMIT_SOURCE_TEXT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    query: Query
    omit_context: bool
    omit_source_text: bool
    index: str
    def __init__(self, query: _Optional[_Union[Query, _Mapping]] = ..., omit_context: _Optional[bool] = ..., omit_source_text: _Optional[bool] = ..., index: _Optional[str] = ...) -> None: ...

class RetrieveResponse(_message.Message):
    __slots__ = ("retrieval",)
    RETRIEVAL_FIELD_NUMBER: _ClassVar[int]
    retrieval: Retrieval
    def __init__(self, retrieval: _Optional[_Union[Retrieval, _Mapping]] = ...) -> None: ...

class RetrieveStreamRequest(_message.Message):
    __slots__ = ("query", "omit_context", "omit_source_text", "index")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    OMIT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OMIT_SOURCE_TEXT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    query: Query
    omit_context: bool
    omit_source_text: bool
    index: str
    def __init__(self, query: _Optional[_Union[Query, _Mapping]] = ..., omit_context: _Optional[bool] = ..., omit_source_text: _Optional[bool] = ..., index: _Optional[str] = ...) -> None: ...

class RetrieveStreamResponse(_message.Message):
    __slots__ = ("level", "retrieval")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    RETRIEVAL_FIELD_NUMBER: _ClassVar[int]
    level: Level
    retrieval: Retrieval
    def __init__(self, level: _Optional[_Union[Level, str]] = ..., retrieval: _Optional[_Union[Retrieval, _Mapping]] = ...) -> None: ...

class AnswerRequest(_message.Message):
    __slots__ = ("query", "omit_context", "omit_source_text", "index")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    OMIT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    OMIT_SOURCE_TEXT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    query: Query
    omit_context: bool
    omit_source_text: bool
    index: str
    def __init__(self, query: _Optional[_Union[Query, _Mapping]] = ..., omit_context: _Optional[bool] = ..., omit_source_text: _Optional[bool] = ..., index: _Optional[str] = ...) -> None: ...

class AnswerResponse(_message.Message):
    __slots__ = ("retrieval", "text", "answer")
    RETRIEVAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    retrieval: Retrieval
    text: str
    answer: FinalAnswer
    def __init__(self, retrieval: _Optional[_Union[Retrieval, _Mapping]] = ..., text: _Optional[str] = ..., answer: _Optional[_Union[FinalAnswer, _Mapping]] = ...) -> None: ...

class DescribeIndexRequest(_message.Message):
    __slots__ = ("index", "filter", "as_of")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    index: str
    filter: str
    as_of: str
    def __init__(self, index: _Optional[str] = ..., filter: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class DescribeIndexResponse(_message.Message):
    __slots__ = ("info", "modes")
    INFO_FIELD_NUMBER: _ClassVar[int]
    MODES_FIELD_NUMBER: _ClassVar[int]
    info: IndexInfo
    modes: _containers.RepeatedScalarFieldContainer[Mode]
    def __init__(self, info: _Optional[_Union[IndexInfo, _Mapping]] = ..., modes: _Optional[_Iterable[_Union[Mode, str]]] = ...) -> None: ...

class ListIndexesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListIndexesResponse(_message.Message):
    __slots__ = ("indexes", "next_page_token")
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    indexes: _containers.RepeatedCompositeFieldContainer[IndexEntry]
    next_page_token: str
    def __init__(self, indexes: _Optional[_Iterable[_Union[IndexEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class IndexEntry(_message.Message):
    __slots__ = ("name", "title", "default")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    title: str
    default: bool
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., default: _Optional[bool] = ...) -> None: ...

class GetEntityRequest(_message.Message):
    __slots__ = ("entity", "max_relations", "max_sources", "labels", "index", "filter", "as_of")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    MAX_RELATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_SOURCES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    entity: str
    max_relations: int
    max_sources: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    index: str
    filter: str
    as_of: str
    def __init__(self, entity: _Optional[str] = ..., max_relations: _Optional[int] = ..., max_sources: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., index: _Optional[str] = ..., filter: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class GetEntityResponse(_message.Message):
    __slots__ = ("entity", "relations", "neighbours", "ancestors", "members", "communities", "sources", "relation_count", "source_count", "member_count", "note")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    RELATIONS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    ANCESTORS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    COMMUNITIES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    RELATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    entity: Entity
    relations: _containers.RepeatedCompositeFieldContainer[Triple]
    neighbours: _containers.RepeatedCompositeFieldContainer[Entity]
    ancestors: _containers.RepeatedCompositeFieldContainer[Entity]
    members: _containers.RepeatedCompositeFieldContainer[Entity]
    communities: _containers.RepeatedCompositeFieldContainer[Community]
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    relation_count: int
    source_count: int
    member_count: int
    note: str
    def __init__(self, entity: _Optional[_Union[Entity, _Mapping]] = ..., relations: _Optional[_Iterable[_Union[Triple, _Mapping]]] = ..., neighbours: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., ancestors: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., communities: _Optional[_Iterable[_Union[Community, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., relation_count: _Optional[int] = ..., source_count: _Optional[int] = ..., member_count: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class FindPathRequest(_message.Message):
    __slots__ = ("source", "target", "labels", "index", "filter", "as_of")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    index: str
    filter: str
    as_of: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., index: _Optional[str] = ..., filter: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class FindPathResponse(_message.Message):
    __slots__ = ("path", "entities", "triples", "note")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    TRIPLES_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    path: Path
    entities: _containers.RepeatedCompositeFieldContainer[Entity]
    triples: _containers.RepeatedCompositeFieldContainer[Triple]
    note: str
    def __init__(self, path: _Optional[_Union[Path, _Mapping]] = ..., entities: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., triples: _Optional[_Iterable[_Union[Triple, _Mapping]]] = ..., note: _Optional[str] = ...) -> None: ...

class GetCommunityRequest(_message.Message):
    __slots__ = ("community_id", "max_members", "labels", "index", "filter", "as_of")
    COMMUNITY_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    community_id: str
    max_members: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    index: str
    filter: str
    as_of: str
    def __init__(self, community_id: _Optional[str] = ..., max_members: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., index: _Optional[str] = ..., filter: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class GetCommunityResponse(_message.Message):
    __slots__ = ("community", "members", "parent", "children", "member_count")
    COMMUNITY_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    community: Community
    members: _containers.RepeatedCompositeFieldContainer[Entity]
    parent: Community
    children: _containers.RepeatedCompositeFieldContainer[Community]
    member_count: int
    def __init__(self, community: _Optional[_Union[Community, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., parent: _Optional[_Union[Community, _Mapping]] = ..., children: _Optional[_Iterable[_Union[Community, _Mapping]]] = ..., member_count: _Optional[int] = ...) -> None: ...

class GetDocumentRequest(_message.Message):
    __slots__ = ("document_id", "start", "max_chars", "labels", "index", "filter", "as_of")
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    MAX_CHARS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    start: int
    max_chars: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    index: str
    filter: str
    as_of: str
    def __init__(self, document_id: _Optional[str] = ..., start: _Optional[int] = ..., max_chars: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., index: _Optional[str] = ..., filter: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class GetDocumentResponse(_message.Message):
    __slots__ = ("document_id", "title", "uri", "text", "start", "total_chars", "chunks", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CHARS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    title: str
    uri: str
    text: str
    start: int
    total_chars: int
    chunks: _containers.RepeatedCompositeFieldContainer[Source]
    metadata: _containers.MessageMap[str, Value]
    def __init__(self, document_id: _Optional[str] = ..., title: _Optional[str] = ..., uri: _Optional[str] = ..., text: _Optional[str] = ..., start: _Optional[int] = ..., total_chars: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class Entity(_message.Message):
    __slots__ = ("entity_id", "name", "type", "description", "layer", "score", "matched")
    ENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    entity_id: str
    name: str
    type: str
    description: str
    layer: int
    score: float
    matched: str
    def __init__(self, entity_id: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[str] = ..., description: _Optional[str] = ..., layer: _Optional[int] = ..., score: _Optional[float] = ..., matched: _Optional[str] = ...) -> None: ...

class Community(_message.Message):
    __slots__ = ("community_id", "level", "title", "report", "rating", "hits", "score", "report_missing")
    COMMUNITY_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    RATING_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    REPORT_MISSING_FIELD_NUMBER: _ClassVar[int]
    community_id: str
    level: int
    title: str
    report: str
    rating: float
    hits: int
    score: float
    report_missing: bool
    def __init__(self, community_id: _Optional[str] = ..., level: _Optional[int] = ..., title: _Optional[str] = ..., report: _Optional[str] = ..., rating: _Optional[float] = ..., hits: _Optional[int] = ..., score: _Optional[float] = ..., report_missing: _Optional[bool] = ...) -> None: ...

class Path(_message.Message):
    __slots__ = ("source_id", "target_id", "entity_ids", "entity_names", "connected")
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    ENTITY_IDS_FIELD_NUMBER: _ClassVar[int]
    ENTITY_NAMES_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    source_id: str
    target_id: str
    entity_ids: _containers.RepeatedScalarFieldContainer[str]
    entity_names: _containers.RepeatedScalarFieldContainer[str]
    connected: bool
    def __init__(self, source_id: _Optional[str] = ..., target_id: _Optional[str] = ..., entity_ids: _Optional[_Iterable[str]] = ..., entity_names: _Optional[_Iterable[str]] = ..., connected: _Optional[bool] = ...) -> None: ...

class Triple(_message.Message):
    __slots__ = ("relation_id", "source_id", "target_id", "source_name", "target_name", "kind", "description", "weight", "score")
    RELATION_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    relation_id: str
    source_id: str
    target_id: str
    source_name: str
    target_name: str
    kind: str
    description: str
    weight: float
    score: float
    def __init__(self, relation_id: _Optional[str] = ..., source_id: _Optional[str] = ..., target_id: _Optional[str] = ..., source_name: _Optional[str] = ..., target_name: _Optional[str] = ..., kind: _Optional[str] = ..., description: _Optional[str] = ..., weight: _Optional[float] = ..., score: _Optional[float] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("chunk_id", "document_id", "title", "uri", "start", "end", "text", "score", "metadata", "places", "similarity")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    CHUNK_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    chunk_id: str
    document_id: str
    title: str
    uri: str
    start: int
    end: int
    text: str
    score: float
    metadata: _containers.MessageMap[str, Value]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    similarity: float
    def __init__(self, chunk_id: _Optional[str] = ..., document_id: _Optional[str] = ..., title: _Optional[str] = ..., uri: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., text: _Optional[str] = ..., score: _Optional[float] = ..., metadata: _Optional[_Mapping[str, Value]] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., similarity: _Optional[float] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("start", "end", "kind", "display", "page", "page_label", "section", "anchor", "row", "boxes", "link")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    PAGE_LABEL_FIELD_NUMBER: _ClassVar[int]
    SECTION_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    kind: str
    display: str
    page: int
    page_label: str
    section: str
    anchor: str
    row: int
    boxes: _containers.RepeatedCompositeFieldContainer[Box]
    link: str
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., kind: _Optional[str] = ..., display: _Optional[str] = ..., page: _Optional[int] = ..., page_label: _Optional[str] = ..., section: _Optional[str] = ..., anchor: _Optional[str] = ..., row: _Optional[int] = ..., boxes: _Optional[_Iterable[_Union[Box, _Mapping]]] = ..., link: _Optional[str] = ...) -> None: ...

class Box(_message.Message):
    __slots__ = ("left", "top", "right", "bottom")
    LEFT_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    left: float
    top: float
    right: float
    bottom: float
    def __init__(self, left: _Optional[float] = ..., top: _Optional[float] = ..., right: _Optional[float] = ..., bottom: _Optional[float] = ...) -> None: ...

class Retrieval(_message.Message):
    __slots__ = ("question", "mode", "snapshot_id", "local", "communities", "key_entities", "paths", "triples", "sources", "context", "context_tokens", "context_refs", "timings_ms", "partial", "map_work", "claims", "note")
    class ContextRefsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TimingsMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    COMMUNITIES_FIELD_NUMBER: _ClassVar[int]
    KEY_ENTITIES_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    TRIPLES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_REFS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_MS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    MAP_WORK_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    question: str
    mode: Mode
    snapshot_id: str
    local: _containers.RepeatedCompositeFieldContainer[Entity]
    communities: _containers.RepeatedCompositeFieldContainer[Community]
    key_entities: _containers.RepeatedCompositeFieldContainer[Entity]
    paths: _containers.RepeatedCompositeFieldContainer[Path]
    triples: _containers.RepeatedCompositeFieldContainer[Triple]
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    context: str
    context_tokens: int
    context_refs: _containers.ScalarMap[str, str]
    timings_ms: _containers.ScalarMap[str, float]
    partial: _containers.RepeatedScalarFieldContainer[str]
    map_work: MapWork
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    note: str
    def __init__(self, question: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., snapshot_id: _Optional[str] = ..., local: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., communities: _Optional[_Iterable[_Union[Community, _Mapping]]] = ..., key_entities: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., paths: _Optional[_Iterable[_Union[Path, _Mapping]]] = ..., triples: _Optional[_Iterable[_Union[Triple, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., context: _Optional[str] = ..., context_tokens: _Optional[int] = ..., context_refs: _Optional[_Mapping[str, str]] = ..., timings_ms: _Optional[_Mapping[str, float]] = ..., partial: _Optional[_Iterable[str]] = ..., map_work: _Optional[_Union[MapWork, _Mapping]] = ..., claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ..., note: _Optional[str] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("claim_id", "subject", "object", "subject_id", "object_id", "type", "status", "start_date", "end_date", "description", "source_text", "chunk_id")
    CLAIM_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    START_DATE_FIELD_NUMBER: _ClassVar[int]
    END_DATE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TEXT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_ID_FIELD_NUMBER: _ClassVar[int]
    claim_id: str
    subject: str
    object: str
    subject_id: str
    object_id: str
    type: str
    status: str
    start_date: str
    end_date: str
    description: str
    source_text: str
    chunk_id: str
    def __init__(self, claim_id: _Optional[str] = ..., subject: _Optional[str] = ..., object: _Optional[str] = ..., subject_id: _Optional[str] = ..., object_id: _Optional[str] = ..., type: _Optional[str] = ..., status: _Optional[str] = ..., start_date: _Optional[str] = ..., end_date: _Optional[str] = ..., description: _Optional[str] = ..., source_text: _Optional[str] = ..., chunk_id: _Optional[str] = ...) -> None: ...

class MapWork(_message.Message):
    __slots__ = ("records", "parts", "part_tokens", "calls", "points", "unhelpful", "failed", "uncited", "dropped", "left_out", "input_tokens", "output_tokens", "unreported")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PART_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    UNHELPFUL_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    UNCITED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    UNREPORTED_FIELD_NUMBER: _ClassVar[int]
    records: int
    parts: int
    part_tokens: int
    calls: int
    points: int
    unhelpful: int
    failed: int
    uncited: int
    dropped: int
    left_out: int
    input_tokens: int
    output_tokens: int
    unreported: int
    def __init__(self, records: _Optional[int] = ..., parts: _Optional[int] = ..., part_tokens: _Optional[int] = ..., calls: _Optional[int] = ..., points: _Optional[int] = ..., unhelpful: _Optional[int] = ..., failed: _Optional[int] = ..., uncited: _Optional[int] = ..., dropped: _Optional[int] = ..., left_out: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., unreported: _Optional[int] = ...) -> None: ...

class Citation(_message.Message):
    __slots__ = ("ref", "kind", "id", "title", "document_id", "uri", "places")
    REF_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    ref: str
    kind: str
    id: str
    title: str
    document_id: str
    uri: str
    places: _containers.RepeatedCompositeFieldContainer[Place]
    def __init__(self, ref: _Optional[str] = ..., kind: _Optional[str] = ..., id: _Optional[str] = ..., title: _Optional[str] = ..., document_id: _Optional[str] = ..., uri: _Optional[str] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ...) -> None: ...

class FinalAnswer(_message.Message):
    __slots__ = ("text", "citations", "dropped_citations", "model", "input_tokens", "output_tokens", "retrieval", "finish_reason")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_CITATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETRIEVAL_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    text: str
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    dropped_citations: int
    model: str
    input_tokens: int
    output_tokens: int
    retrieval: Retrieval
    finish_reason: str
    def __init__(self, text: _Optional[str] = ..., citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ..., dropped_citations: _Optional[int] = ..., model: _Optional[str] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., retrieval: _Optional[_Union[Retrieval, _Mapping]] = ..., finish_reason: _Optional[str] = ...) -> None: ...

class IndexInfo(_message.Message):
    __slots__ = ("snapshot_id", "created_at", "complete", "counts", "layers", "communities_by_level", "embedder", "dim", "facets", "as_of_field", "main_entities", "example_titles")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class CommunitiesByLevelEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    COMMUNITIES_BY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    EMBEDDER_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    FACETS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_FIELD_NUMBER: _ClassVar[int]
    MAIN_ENTITIES_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_TITLES_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: str
    created_at: str
    complete: bool
    counts: _containers.ScalarMap[str, int]
    layers: _containers.RepeatedCompositeFieldContainer[Layer]
    communities_by_level: _containers.ScalarMap[int, int]
    embedder: str
    dim: int
    facets: _containers.RepeatedCompositeFieldContainer[Facet]
    as_of_field: str
    main_entities: _containers.RepeatedScalarFieldContainer[str]
    example_titles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, snapshot_id: _Optional[str] = ..., created_at: _Optional[str] = ..., complete: _Optional[bool] = ..., counts: _Optional[_Mapping[str, int]] = ..., layers: _Optional[_Iterable[_Union[Layer, _Mapping]]] = ..., communities_by_level: _Optional[_Mapping[int, int]] = ..., embedder: _Optional[str] = ..., dim: _Optional[int] = ..., facets: _Optional[_Iterable[_Union[Facet, _Mapping]]] = ..., as_of_field: _Optional[str] = ..., main_entities: _Optional[_Iterable[str]] = ..., example_titles: _Optional[_Iterable[str]] = ...) -> None: ...

class Facet(_message.Message):
    __slots__ = ("name", "type", "list", "documents", "min", "max", "distinct", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    DISTINCT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: FieldType
    list: bool
    documents: int
    min: Value
    max: Value
    distinct: int
    values: _containers.RepeatedCompositeFieldContainer[FacetValue]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[FieldType, str]] = ..., list: _Optional[bool] = ..., documents: _Optional[int] = ..., min: _Optional[_Union[Value, _Mapping]] = ..., max: _Optional[_Union[Value, _Mapping]] = ..., distinct: _Optional[int] = ..., values: _Optional[_Iterable[_Union[FacetValue, _Mapping]]] = ...) -> None: ...

class FacetValue(_message.Message):
    __slots__ = ("value", "documents")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    value: Value
    documents: int
    def __init__(self, value: _Optional[_Union[Value, _Mapping]] = ..., documents: _Optional[int] = ...) -> None: ...

class Layer(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.MessageMap[str, Value]
    def __init__(self, values: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class ListValue(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("integer", "number", "text", "flag", "list")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    integer: int
    number: float
    text: str
    flag: bool
    list: ListValue
    def __init__(self, integer: _Optional[int] = ..., number: _Optional[float] = ..., text: _Optional[str] = ..., flag: _Optional[bool] = ..., list: _Optional[_Union[ListValue, _Mapping]] = ...) -> None: ...
