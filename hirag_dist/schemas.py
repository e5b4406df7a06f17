"""The tables, column by column. One form in memory, in Ray's object store, in Parquet and in Milvus inserts.

Rows are sorted by (layer or level, id); ids are hashes of content (`core.text.ids`).
"""

from __future__ import annotations

import pyarrow as pa


def _or_null(kind: pa.DataType) -> pa.Field:
    return pa.field("", kind)


def _columns(**kinds: pa.DataType | pa.Field) -> list[pa.Field]:
    """Return columns without nulls, but for those that `_or_null` makes."""
    return [
        kind.with_name(name) if isinstance(kind, pa.Field) else pa.field(name, kind, nullable=False)
        for name, kind in kinds.items()
    ]


def _table(**kinds: pa.DataType | pa.Field) -> pa.Schema:
    return pa.schema(_columns(**kinds))


def _record(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(_columns(**kinds))


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


_STRING = pa.string()
_STRINGS = _list_of(_STRING)

DOCUMENTS = _table(
    document_id=_STRING,  # hash of text and labels
    uri=_STRING,
    record=pa.int32(),  # position in a file of many records, else 0
    title=_STRING,
    source_ids=_STRINGS,  # what its records are called by their owner, one or, of copies, several
    labels=_STRINGS,
    n_chars=pa.int64(),
    text=_STRING,
)

PLACES = _table(  # positions in originals, of documents whose reader knows them
    document_id=_STRING,
    start=pa.int64(),  # characters of the document's text, half open
    end=pa.int64(),
    kind=_STRING,  # page | slide | section | chapter | sheet | part
    page=pa.int32(),  # from 1; 0 for none
    page_label=_STRING,
    section=_STRING,
    anchor=_STRING,
    row=pa.int64(),  # from 1; 0 for none
    boxes=pa.binary(),  # left, top, right, bottom in 65,535ths of the page, uint16, little endian
)

CHUNKS = _table(
    chunk_id=_STRING,  # hash of the text (12 hex digits), then of document and span (12)
    document_id=_STRING,
    position=pa.int32(),  # 0, 1, … within the document
    start=pa.int64(),  # characters of the document's text, half open
    end=pa.int64(),
    n_tokens=pa.int32(),
    text=_STRING,
)

MENTIONS = _table(
    name_key=_STRING,  # normalised name: what merging goes by
    chunk_id=_STRING,
    position=pa.int32(),  # order of the record in its reply
    name=_STRING,
    type=_STRING,  # lower case; "unknown" for an endpoint never described
    description=_STRING,
    described=pa.bool_(),  # False: seen as the endpoint of a relation only
)

RELATION_MENTIONS = _table(
    source_key=_STRING,  # source_key < target_key: relations have no direction
    target_key=_STRING,
    chunk_id=_STRING,
    position=pa.int32(),
    description=_STRING,
    strength=pa.float64(),
)

EXTRACTION_COSTS = _table(
    chunk_id=_STRING,
    stage=_STRING,  # extract | verify | extract_nlp | claims
    tokens=pa.int64(),  # of the replies that the stage's rows of the chunk come from
)

READ_FILES = _table(  # files of INPUT that the documents were read from
    name=_STRING,  # below INPUT, or URI
    size_bytes=pa.int64(),
    modified=_STRING,  # nanoseconds since the epoch; empty where it is not known
    etag=_STRING,  # of an object store; empty where it gives none
    format=_STRING,
    compression=_or_null(_STRING),
    reading=_STRING,  # hash of reading options and of the reader's version
    is_whole=pa.bool_(),  # whether an update may take its documents from the index
    n_documents=pa.int64(),  # that were read from it, each text once
    copies=_STRINGS,  # ids of documents in it that have several places, one for each place in it
    copy_records=_list_of(pa.int32()),  # position of each copy in the file, else 0
    copy_source_ids=_list_of(_STRINGS),  # ids that its owner gives each copy
)

REJECTS = _table(
    stage=_STRING,
    unit_id=_STRING,  # chunk, entity, cluster, community or file
    reason=_STRING,
    attempts=pa.int32(),
    request=_STRING,  # what was asked, as text; empty for files
    reply=_STRING,  # what came back last
)

DROPPED = pa.schema(  # dead letters whose loss was accepted
    [*REJECTS, *_columns(dropped_by=_STRING, dropped_at=_STRING, dropped_why=_STRING)]
)

ENTITIES = _table(
    entity_id=_STRING,  # hash of layer and normalised name
    layer=pa.int32(),  # 0 extracted, i ≥ 1 summary (Eq. 10)
    name=_STRING,
    type=_STRING,
    description=_STRING,
    described=pa.bool_(),
    n_mentions=pa.int32(),
    chunk_ids=_STRINGS,  # empty above layer 0
)

RELATIONS = _table(
    relation_id=_STRING,  # hash of kind and endpoints
    source_id=_STRING,
    target_id=_STRING,
    kind=_STRING,  # extracted | summary (member → summary entity) | same_name
    layer=pa.int32(),  # of the lower endpoint
    description=_STRING,
    weight=pa.float64(),
    chunk_ids=_STRINGS,
)

ALIASES = _table(
    name_key=_STRING,  # what mentions were merged by before
    canonical_key=_STRING,  # and are now: the group's most mentioned
    name=_STRING,
    canonical_name=_STRING,
    entity_id=_STRING,  # the entity of layer 0 that both are
    tier=_STRING,  # user | normalise | alias | similar | llm; vector in snapshots of former versions
    score=pa.float64(),  # probability that the names are one entity's
    evidence=_STRING,
)

CLAIMS = _table(  # what texts claim of entities (GraphRAG paper §3.1.2; GraphRAG's covariates)
    claim_id=_STRING,  # hash of chunk and statement
    subject=_STRING,  # as the claim names it
    object=_STRING,  # empty where there is none
    subject_id=_or_null(_STRING),  # the entity of layer 0 of that name, where there is one
    object_id=_or_null(_STRING),
    type=_STRING,
    status=_STRING,  # true | false | suspected, as a rule; empty where the text does not state it
    start_date=_STRING,  # ISO 8601, as a rule; empty where the text does not state it
    end_date=_STRING,
    description=_STRING,
    source_text=_STRING,  # quoted from the chunk
    chunk_id=_STRING,  # who may see the chunk may see the claim; empty: not known
)

CLUSTERS = _table(
    cluster_id=_STRING,
    layer=pa.int32(),  # the layer whose entities are grouped
    entity_id=_STRING,
    responsibility=pa.float32(),
    best=pa.bool_(),  # the member's most likely cluster
)

LAYERS = _table(
    layer=pa.int32(),
    n_entities=pa.int64(),
    n_clusters=pa.int64(),  # of this layer's entities; 0 where it was not clustered
    median_cluster=pa.float64(),
    largest_cluster=pa.int64(),
    sparsity=_or_null(pa.float64()),  # CS, Eq. 17
    change_rate=_or_null(pa.float64()),  # against the layer below
    n_components=pa.int64(),  # of the mixtures, before oversized clusters were split
    n_summaries=pa.int64(),  # entities of the next layer, 0 where none was made
    n_attached=pa.int64(),  # members the model left out, attached afterwards
    n_unattached=pa.int64(),  # members of clusters whose summary is a dead letter
    decision=_STRING,  # go on, or why the hierarchy ends here
)

COMMUNITIES = _table(
    community_id=_STRING,  # hash of level and sorted members, or of those it had when it was new
    level=pa.int32(),  # 0 the coarsest
    parent_id=_or_null(_STRING),
    is_leaf=pa.bool_(),
    n_entities=pa.int64(),
    n_relations=pa.int64(),  # both endpoints inside
    entity_ids=_STRINGS,
)

_FINDING = _record(
    summary=_STRING,
    explanation=_STRING,
    entity_ids=_STRINGS,
    relation_ids=_STRINGS,
)

REPORTS = _table(
    community_id=_STRING,
    level=pa.int32(),
    title=_STRING,
    summary=_STRING,
    rating=pa.float64(),  # 0 to 10
    rating_explanation=_STRING,
    findings=_list_of(_FINDING),
    origin=_STRING,  # model; members: too small to be worth a call; imported; or stand-in
    n_dropped_references=pa.int32(),  # ids in the reply that named nothing
)

USAGE = _table(
    stage=_STRING,
    role=_STRING,
    model=_STRING,
    endpoint=_STRING,  # its configured name
    calls=pa.int64(),  # replies, whenever they were paid
    ledger_hits=pa.int64(),  # of these, paid before this build asked
    input_tokens=pa.int64(),
    cached_tokens=pa.int64(),  # of the input, at the provider's cache price
    output_tokens=pa.int64(),
    cost_usd=pa.float64(),  # NaN: the price was not known
    rejected=pa.int64(),  # replies refused by their parser
    rate_limited=pa.int64(),  # calls that got a 429, and were made again
    failed=pa.int64(),  # calls without a reply for another reason
)

ENTITY_MENTIONS = pa.schema(  # of entities whose mentions are in documents of several label sets
    [
        *_columns(entity_id=_STRING),
        *(MENTIONS.field(name) for name in MENTIONS.names if name != "name_key"),
    ]
)

STATEMENTS = pa.schema(  # the mentions of relations that are in documents of several label sets
    [
        *_columns(relation_id=_STRING),
        *(RELATION_MENTIONS.field(name) for name in RELATION_MENTIONS.names if not name.endswith("_key")),
    ]
)

SUMMARY_SOURCES = _table(  # which clusters a model was shown when it named and described a summary entity
    entity_id=_STRING,
    cluster_id=_STRING,
)

METADATA_FIELDS = _table(  # declared fields of documents, in their order
    name=_STRING,
    type=_STRING,  # string | number | date | bool
    list=pa.bool_(),
    as_of=pa.bool_(),  # whether questions compare it with their `as_of`
)

DOCUMENT_METADATA = _table(
    document_id=_STRING,
    metadata=_STRING,  # JSON by field; a date is ISO 8601
)

_INPUTS = _list_of(_record(id=_STRING, digest=pa.int64()))
_TEXT_KEYS = _list_of(pa.int64())
_WRITTEN = {  # columns of a text that a model wrote, or a stand-in
    "inputs": _INPUTS,  # what it was written from: ids, and digests of the text shown of each
    "sources": _TEXT_KEYS,  # `text_key` of all chunks that it derives from, transitively, ascending
    "stale_share": pa.float32(),  # share of the inputs that have changed since; 1 for a stand-in
    "stale_since": pa.int32(),  # number of the update in which it became due; 0: it is not due
}

_SUMMARY_ENTITY = _record(name=_STRING, type=_STRING, description=_STRING)
_COVER = _record(
    member_id=_STRING,
    entity=pa.int32(),  # position in `entities`
    description=_STRING,
    strength=pa.float64(),
)

SUMMARIES = _table(  # the reply about each cluster
    layer=pa.int32(),  # the layer whose entities are grouped
    cluster_id=_STRING,
    entities=_list_of(_SUMMARY_ENTITY),
    covers=_list_of(_COVER),
    origin=_STRING,  # model | stand-in: by rules, without a call
    n_founded=pa.int32(),  # members when the cluster was founded
    n_turned=pa.int32(),  # members that joined or left since
    **_WRITTEN,
)

DESCRIPTION_DEBT = _table(  # descriptions of entities of layer 0 that a model has still to merge
    name_key=_STRING,  # what the entity's mentions are merged by
    origin=_STRING,  # of the description: model, kept from before | stand-in: joined by rules
    name=_STRING,  # that a kept description was written for, with the next
    type=_STRING,
    unread=_TEXT_KEYS,  # `text_key` of texts that a kept description does not derive from yet
    sources=_TEXT_KEYS,  # `text_key` of former texts of documents that it still derives from
    n_changed=pa.int32(),  # texts that came or went since; of a stand-in, all that describe it
    stale_since=pa.int32(),  # number of the update in which it became due
    tokens=pa.int64(),  # that merging them costs, about
)

REPORT_INPUTS = _table(community_id=_STRING, **_WRITTEN)  # of each report that is not its members

VECTORS = _table(
    id=_STRING,
    vector=pa.binary(),  # float32, little endian, unit length or all zero
)
