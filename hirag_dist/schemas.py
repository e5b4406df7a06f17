"""The tables, column by column. One form in memory, in Ray's object store, in Parquet and in Milvus inserts.

Rows are sorted by (layer or level, id); ids are hashes of content (`core.text.ids`).
"""

from __future__ import annotations

import pyarrow as pa


def _column(name: str, kind: pa.DataType, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", kind, nullable=False))


_STRING = pa.string()
_STRINGS = _list_of(_STRING)

DOCUMENTS = pa.schema(
    [
        _column("document_id", _STRING),  # hash of text and labels
        _column("uri", _STRING),
        _column("record", pa.int32()),  # position in a file of many records, else 0
        _column("title", _STRING),
        _column("source_ids", _STRINGS),  # what its records are called by their owner, one or, of copies, several
        _column("labels", _STRINGS),
        _column("n_chars", pa.int64()),
        _column("text", _STRING),
    ]
)

PLACES = pa.schema(  # positions in originals, of documents whose reader knows them
    [
        _column("document_id", _STRING),
        _column("start", pa.int64()),  # characters of the document's text, half open
        _column("end", pa.int64()),
        _column("kind", _STRING),  # page | slide | section | chapter | sheet | part
        _column("page", pa.int32()),  # from 1; 0 for none
        _column("page_label", _STRING),
        _column("section", _STRING),
        _column("anchor", _STRING),
        _column("row", pa.int64()),  # from 1; 0 for none
        _column("boxes", pa.binary()),  # left, top, right, bottom in 65,535ths of the page, uint16, little endian
    ]
)

CHUNKS = pa.schema(
    [
        _column("chunk_id", _STRING),  # hash of the text (12 hex digits), then of document and span (12)
        _column("document_id", _STRING),
        _column("position", pa.int32()),  # 0, 1, … within the document
        _column("start", pa.int64()),  # characters of the document's text, half open
        _column("end", pa.int64()),
        _column("n_tokens", pa.int32()),
        _column("text", _STRING),
    ]
)

MENTIONS = pa.schema(
    [
        _column("name_key", _STRING),  # normalised name: what merging goes by
        _column("chunk_id", _STRING),
        _column("position", pa.int32()),  # order of the record in its reply
        _column("name", _STRING),
        _column("type", _STRING),  # lower case; "unknown" for an endpoint never described
        _column("description", _STRING),
        _column("described", pa.bool_()),  # False: seen as the endpoint of a relation only
    ]
)

RELATION_MENTIONS = pa.schema(
    [
        _column("source_key", _STRING),  # source_key < target_key: relations have no direction
        _column("target_key", _STRING),
        _column("chunk_id", _STRING),
        _column("position", pa.int32()),
        _column("description", _STRING),
        _column("strength", pa.float64()),
    ]
)

EXTRACTION_COSTS = pa.schema(
    [
        _column("chunk_id", _STRING),
        _column("stage", _STRING),  # extract | verify | extract_nlp | claims
        _column("tokens", pa.int64()),  # of the replies that the stage's rows of the chunk come from
    ]
)

READ_FILES = pa.schema(  # files of INPUT that the documents were read from
    [
        _column("name", _STRING),  # below INPUT, or URI
        _column("size_bytes", pa.int64()),
        _column("modified", _STRING),  # nanoseconds since the epoch; empty where it is not known
        _column("etag", _STRING),  # of an object store; empty where it gives none
        _column("format", _STRING),
        _column("compression", _STRING, nullable=True),
        _column("reading", _STRING),  # hash of reading options and of the reader's version
        _column("is_whole", pa.bool_()),  # whether an update may take its documents from the index
        _column("n_documents", pa.int64()),  # that were read from it, each text once
        _column("copies", _STRINGS),  # ids of documents in it that have several places, one for each place in it
        _column("copy_records", _list_of(pa.int32())),  # position of each copy in the file, else 0
        _column("copy_source_ids", _list_of(_STRINGS)),  # ids that its owner gives each copy
    ]
)

REJECTS = pa.schema(
    [
        _column("stage", _STRING),
        _column("unit_id", _STRING),  # chunk, entity, cluster, community or file
        _column("reason", _STRING),
        _column("attempts", pa.int32()),
        _column("request", _STRING),  # what was asked, as text; empty for files
        _column("reply", _STRING),  # what came back last
    ]
)

DROPPED = pa.schema(  # dead letters whose loss was accepted
    [
        *REJECTS,
        _column("dropped_by", _STRING),
        _column("dropped_at", _STRING),
        _column("dropped_why", _STRING),
    ]
)

ENTITIES = pa.schema(
    [
        _column("entity_id", _STRING),  # hash of layer and normalised name
        _column("layer", pa.int32()),  # 0 extracted, i ≥ 1 summary (Eq. 10)
        _column("name", _STRING),
        _column("type", _STRING),
        _column("description", _STRING),
        _column("described", pa.bool_()),
        _column("n_mentions", pa.int32()),
        _column("chunk_ids", _STRINGS),  # empty above layer 0
    ]
)

RELATIONS = pa.schema(
    [
        _column("relation_id", _STRING),  # hash of kind and endpoints
        _column("source_id", _STRING),
        _column("target_id", _STRING),
        _column("kind", _STRING),  # extracted | summary (member → summary entity) | same_name
        _column("layer", pa.int32()),  # of the lower endpoint
        _column("description", _STRING),
        _column("weight", pa.float64()),
        _column("chunk_ids", _STRINGS),
    ]
)

ALIASES = pa.schema(
    [
        _column("name_key", _STRING),  # what mentions were merged by before
        _column("canonical_key", _STRING),  # and are now: the group's most mentioned
        _column("name", _STRING),
        _column("canonical_name", _STRING),
        _column("entity_id", _STRING),  # the entity of layer 0 that both are
        _column("tier", _STRING),  # user | normalise | alias | similar | llm; vector in snapshots of former versions
        _column("score", pa.float64()),  # probability that the names are one entity's
        _column("evidence", _STRING),
    ]
)

CLAIMS = pa.schema(  # what texts claim of entities (GraphRAG paper §3.1.2; GraphRAG's covariates)
    [
        _column("claim_id", _STRING),  # hash of chunk and statement
        _column("subject", _STRING),  # as the claim names it
        _column("object", _STRING),  # empty where there is none
        _column("subject_id", _STRING, nullable=True),  # the entity of layer 0 of that name, where there is one
        _column("object_id", _STRING, nullable=True),
        _column("type", _STRING),
        _column("status", _STRING),  # true | false | suspected, as a rule; empty where the text does not state it
        _column("start_date", _STRING),  # ISO 8601, as a rule; empty where the text does not state it
        _column("end_date", _STRING),
        _column("description", _STRING),
        _column("source_text", _STRING),  # quoted from the chunk
        _column("chunk_id", _STRING),  # who may see the chunk may see the claim; empty: not known
    ]
)

CLUSTERS = pa.schema(
    [
        _column("cluster_id", _STRING),
        _column("layer", pa.int32()),  # the layer whose entities are grouped
        _column("entity_id", _STRING),
        _column("responsibility", pa.float32()),
        _column("best", pa.bool_()),  # the member's most likely cluster
    ]
)

LAYERS = pa.schema(
    [
        _column("layer", pa.int32()),
        _column("n_entities", pa.int64()),
        _column("n_clusters", pa.int64()),  # of this layer's entities; 0 where it was not clustered
        _column("median_cluster", pa.float64()),
        _column("largest_cluster", pa.int64()),
        _column("sparsity", pa.float64(), nullable=True),  # CS, Eq. 17
        _column("change_rate", pa.float64(), nullable=True),  # against the layer below
        _column("n_components", pa.int64()),  # of the mixtures, before oversized clusters were split
        _column("n_summaries", pa.int64()),  # entities of the next layer, 0 where none was made
        _column("n_attached", pa.int64()),  # members the model left out, attached afterwards
        _column("n_unattached", pa.int64()),  # members of clusters whose summary is a dead letter
        _column("decision", _STRING),  # go on, or why the hierarchy ends here
    ]
)

COMMUNITIES = pa.schema(
    [
        _column("community_id", _STRING),  # hash of level and sorted members, or of those it had when it was new
        _column("level", pa.int32()),  # 0 the coarsest
        _column("parent_id", _STRING, nullable=True),
        _column("is_leaf", pa.bool_()),
        _column("n_entities", pa.int64()),
        _column("n_relations", pa.int64()),  # both endpoints inside
        _column("entity_ids", _STRINGS),
    ]
)

_FINDING = pa.struct(
    [
        _column("summary", _STRING),
        _column("explanation", _STRING),
        _column("entity_ids", _STRINGS),
        _column("relation_ids", _STRINGS),
    ]
)

REPORTS = pa.schema(
    [
        _column("community_id", _STRING),
        _column("level", pa.int32()),
        _column("title", _STRING),
        _column("summary", _STRING),
        _column("rating", pa.float64()),  # 0 to 10
        _column("rating_explanation", _STRING),
        _column("findings", _list_of(_FINDING)),
        _column("origin", _STRING),  # model; members: too small to be worth a call; imported; or stand-in
        _column("n_dropped_references", pa.int32()),  # ids in the reply that named nothing
    ]
)

USAGE = pa.schema(
    [
        _column("stage", _STRING),
        _column("role", _STRING),
        _column("model", _STRING),
        _column("endpoint", _STRING),  # its configured name
        _column("calls", pa.int64()),  # replies, whenever they were paid
        _column("ledger_hits", pa.int64()),  # of these, paid before this build asked
        _column("input_tokens", pa.int64()),
        _column("cached_tokens", pa.int64()),  # of the input, at the provider's cache price
        _column("output_tokens", pa.int64()),
        _column("cost_usd", pa.float64()),  # NaN: the price was not known
        _column("rejected", pa.int64()),  # replies refused by their parser
        _column("rate_limited", pa.int64()),  # calls that got a 429, and were made again
        _column("failed", pa.int64()),  # calls without a reply for another reason
    ]
)

ENTITY_MENTIONS = pa.schema(  # of entities whose mentions are in documents of several label sets
    [
        _column("entity_id", _STRING),
        *(MENTIONS.field(name) for name in MENTIONS.names if name != "name_key"),
    ]
)

STATEMENTS = pa.schema(  # the mentions of relations that are in documents of several label sets
    [
        _column("relation_id", _STRING),
        *(RELATION_MENTIONS.field(name) for name in RELATION_MENTIONS.names if not name.endswith("_key")),
    ]
)

SUMMARY_SOURCES = pa.schema(  # which clusters a model was shown when it named and described a summary entity
    [
        _column("entity_id", _STRING),
        _column("cluster_id", _STRING),
    ]
)

METADATA_FIELDS = pa.schema(  # declared fields of documents, in their order
    [
        _column("name", _STRING),
        _column("type", _STRING),  # string | number | date | bool
        _column("list", pa.bool_()),
        _column("as_of", pa.bool_()),  # whether questions compare it with their `as_of`
    ]
)

DOCUMENT_METADATA = pa.schema(
    [
        _column("document_id", _STRING),
        _column("metadata", _STRING),  # JSON by field; a date is ISO 8601
    ]
)

_INPUT = pa.struct([_column("id", _STRING), _column("digest", pa.int64())])
_INPUTS = _list_of(_INPUT)
_TEXT_KEYS = _list_of(pa.int64())
_WRITTEN = [  # of a text that a model wrote, or a stand-in
    _column("inputs", _INPUTS),  # what it was written from: ids, and digests of the text shown of each
    _column("sources", _TEXT_KEYS),  # `text_key` of all chunks that it derives from, transitively, ascending
    _column("stale_share", pa.float32()),  # share of the inputs that have changed since; 1 for a stand-in
    _column("stale_since", pa.int32()),  # number of the update in which it became due; 0: it is not due
]

_SUMMARY_ENTITY = pa.struct([_column(name, _STRING) for name in ("name", "type", "description")])
_COVER = pa.struct(
    [
        _column("member_id", _STRING),
        _column("entity", pa.int32()),  # position in `entities`
        _column("description", _STRING),
        _column("strength", pa.float64()),
    ]
)

SUMMARIES = pa.schema(  # the reply about each cluster
    [
        _column("layer", pa.int32()),  # the layer whose entities are grouped
        _column("cluster_id", _STRING),
        _column("entities", _list_of(_SUMMARY_ENTITY)),
        _column("covers", _list_of(_COVER)),
        _column("origin", _STRING),  # model | stand-in: by rules, without a call
        _column("n_founded", pa.int32()),  # members when the cluster was founded
        _column("n_turned", pa.int32()),  # members that joined or left since
        *_WRITTEN,
    ]
)

DESCRIPTION_DEBT = pa.schema(  # descriptions of entities of layer 0 that a model has still to merge
    [
        _column("name_key", _STRING),  # what the entity's mentions are merged by
        _column("origin", _STRING),  # of the description: model, kept from before | stand-in: joined by rules
        _column("name", _STRING),  # that a kept description was written for, with the next
        _column("type", _STRING),
        _column("unread", _TEXT_KEYS),  # `text_key` of texts that a kept description does not derive from yet
        _column("sources", _TEXT_KEYS),  # `text_key` of former texts of documents that it still derives from
        _column("n_changed", pa.int32()),  # texts that came or went since; of a stand-in, all that describe it
        _column("stale_since", pa.int32()),  # number of the update in which it became due
        _column("tokens", pa.int64()),  # that merging them costs, about
    ]
)

REPORT_INPUTS = pa.schema([_column("community_id", _STRING), *_WRITTEN])  # of each report that is not its members

VECTORS = pa.schema(
    [
        _column("id", _STRING),
        _column("vector", pa.binary()),  # float32, little endian, unit length or all zero
    ]
)
