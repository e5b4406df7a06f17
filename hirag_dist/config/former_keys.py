"""Keys of earlier versions: what they are called now, or what takes their place."""

from __future__ import annotations

from collections.abc import Mapping

_FIXED = "it is fixed now: leave the key out"
_PROXY = "a proxy in front of the service limits the connections of one client"
_NO_BATCHES = "calls are always sent one by one; leave the key out"
_ONE_FINDER = "extraction.method is llm or nlp, and nlp has no settings; leave the section out"
_CPU = "a file has 300 processor seconds: split one that takes longer, and leave the key out"
_FIDELITY = "retrieval.fidelity is best, which does the best that was measured, or paper"

RENAMED: Mapping[str, str] = {  # former dotted path of a key → its path now; * stands for one name
    "clustering.summary_pack_tokens": "pack_tokens",
    "communities.report_pack_tokens": "pack_tokens",
    "llm.endpoints.*.timeout_s": "llm.endpoints.*.silence_timeout_s",
    "llm.patience_s": "llm.outage_timeout_s",
    "reading.pdf_memory_bytes": "reading.memory_bytes",
    "service.label_rule": "service.access_rule",
    "service.max_answers": "service.max_concurrent_answers",
    "service.max_concurrent": "service.max_concurrent_requests",
    "service.traces_endpoint": "traces_endpoint",
}

REMOVED: Mapping[str, str] = {  # former dotted path of a key → what takes its place; * stands for one name
    "clustering.covariance": "components are round, and have one width: leave the key out",
    "clustering.max_size": "a cluster has at most twice clustering.target_size members",
    "communities.report_min_entities": "a model writes the report of a community from four entities on",
    "communities.reports": "communities.report_share is the share of the reports that a build writes",
    "execution.tasks_in_flight": "it follows from the limits of calls: leave the key out",
    "extraction.nlp": _ONE_FINDER,
    "extraction.skeleton": _ONE_FINDER,
    "extraction.verify": _ONE_FINDER,
    "homonyms": "entities of one name are one entity: leave the key out",
    "llm.batch": _NO_BATCHES,
    "llm.batch_lines": _NO_BATCHES,
    "llm.batch_poll_s": _NO_BATCHES,
    "llm.batch_rounds": _NO_BATCHES,
    "llm.deadline_s": "llm.outage_timeout_s and the time-outs of an endpoint say how long is waited",
    "llm.endpoints.*.burst_s": _FIXED,
    "llm.endpoints.*.burst_window_s": _FIXED,
    "llm.endpoints.*.seed": _FIXED,
    "llm.failover_s": _FIXED,
    "llm.hedge_after_s": "a request is sent once; leave the key out",
    "llm.hedge_s": "a request is sent once; leave the key out",
    "metadata.fields.*.folder": "metadata.fields.NAME.path takes a folder: '^([^/]+)/' is the first one, "
    "'^[^/]+/([^/]+)/' the second",
    "reading.max_document_bytes": "the text of a document has at most 32 MiB: split it, or leave the key out",
    "reading.max_expansion": _FIXED,
    "reading.max_pages": _FIXED,
    "reading.max_records": _FIXED,
    "reading.cpu_s": _CPU,
    "reading.office_cpu_s": _CPU,
    "reading.pdf_cpu_s": _CPU,
    "reading.office_memory_bytes": "reading.memory_bytes holds for all files that a process of its own reads",
    "pack_units": "pack_tokens limits the units that share a call, and 0 gives each its own",
    "resolution.llm_band": _FIXED,
    "resolution.pairs_per_call": "pack_tokens limits the pairs that share a call, and 0 gives each its own",
    "resolution.threshold": _FIXED,
    "resolution.tiers": "all rules hold, and the summarise model is asked where they leave doubt: leave the key out",
    "retrieval.bridge_endpoints": _FIDELITY,
    "retrieval.bridge_paths": "a bridge takes shortest paths in the graph",
    "retrieval.bridge_ranking": _FIDELITY,
    "retrieval.filter_share": "all sources of a summary or report must pass a filter: leave the key out",
    "retrieval.lean": "choose another retrieval.mode, such as local",
    "retrieval.lexical": _FIDELITY,
    "retrieval.local_entities": _FIDELITY,
    "retrieval.map_reduce.concurrency": "llm.endpoints.NAME.max_concurrent limits the calls",
    "retrieval.map_reduce.reply_tokens": "llm.endpoints.NAME.max_reply_tokens limits the replies of an endpoint",
    "retrieval.map_reduce.seed": "records are shuffled in a fixed order",
    "retrieval.max_triples": _FIXED,
    "retrieval.rerank_candidates": _FIXED,
    "retrieval.reports_on_demand": "`hirag-dist refresh --reports` writes missing reports",
    "retrieval.selection": "records are taken by rank",
    "retrieval.source_fusion": _FIDELITY,
    "service.anonymous_indexes": "`indexes` of a caller in service.callers_file says which indexes the caller may ask",
    "service.callers_grace_s": _FIXED,
    "service.concurrency": "it follows from the embedder and the vector backend: leave the key out",
    "service.hits_file": "communities.report_share takes the most prominent communities first",
    "service.http_api": "service.http serves the APIs, and the page where service.http_page is true",
    "service.http_inspection": "publish the file of `inspect --html` beside the page, without a link from it",
    "service.http_max_connections": _PROXY,
    "service.http_max_connections_per_client": _PROXY,
    "service.http_upload_bytes": _FIXED,
    "service.index_idle_s": _FIXED,
    "service.indexes.*.callers": "`indexes` of a caller in service.callers_file says which indexes the caller may ask",
    "service.indexes.*.map_reduce": "service.map_reduce holds for all indexes",
    "service.indexes.*.max_concurrent": "every index takes half of the requests that a process takes",
    "service.keepalive_s": _FIXED,
    "service.max_concurrent_per_index": "every index takes half of the requests that a process takes",
    "service.max_concurrent_retrievals": "it follows from the embedder and the vector backend: leave the key out",
    "service.max_connection_age_grace_s": _FIXED,
    "service.max_connection_age_s": _FIXED,
    "service.max_connection_idle_s": _FIXED,
    "service.max_connections": _FIXED,
    "service.max_connections_per_client": _PROXY,
    "service.max_message_mib": _FIXED,
    "service.max_queue_wait_s": _FIXED,
    "service.max_wait_s": _FIXED,
    "service.metrics_public": "service.metrics_listen takes any address: leave the key out",
    "service.pin_processes": "taskset or the cpuset of a container binds processes",
    "service.poll_s": _FIXED,
    "service.send_timeout_s": _FIXED,
    "service.state_dir": "each process counts callers' requests from its start",
    "service.traces_ratio": "set OTEL_TRACES_SAMPLER=parentbased_traceidratio and OTEL_TRACES_SAMPLER_ARG in the "
    "environment",
    "update.purge_replaced": "`hirag-dist remove` the document before its new text is added",
    "vectors.alias": "an alias in Milvus can be set by its own tools; leave the key out",
    "vectors.index": "it follows from the number of rows: leave the key out",
    "vectors.index_params": "they follow from the number of rows: leave the key out",
    "vectors.search_breadth": _FIXED,
    "vectors.timeout_s": _FIXED,
}


def hint(location: tuple[int | str, ...]) -> str | None:
    """Return what to do about a key of an earlier version, or None if there was no such key.

    >>> hint(("llm", "endpoints", "main", "timeout_s"))
    'it is called llm.endpoints.main.silence_timeout_s now'
    """
    parts = [str(part) for part in location]
    for former in (".".join(parts), ".".join([*parts[:2], "*", *parts[3:]])):
        if former in RENAMED:
            renamed = RENAMED[former]
            return f"it is called {renamed.replace('*', parts[2]) if '*' in renamed else renamed} now"
        if former in REMOVED:
            return f"there is no such key any more: {REMOVED[former]}"
    return None
