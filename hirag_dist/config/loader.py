"""Reading the configuration: defaults, one YAML file with ${ENV}, then HIRAG__SECTION__KEY from the environment."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ValidationError

from hirag_dist.config.model import Config, EndpointConfig
from hirag_dist.config.sections import long_form
from hirag_dist.errors import ConfigError

_FIXED = "it is fixed now: leave the key out"
_NO_BATCHES = "calls are always sent one by one; leave the key out"
_ONE_FINDER = "extraction.method is llm or nlp, and nlp has no settings; leave the section out"
_FIDELITY = "retrieval.fidelity is best, which does the best that was measured, or paper"

RENAMED: Mapping[str, str] = {  # former dotted path of a key → its path now; * stands for one name
    "clustering.summary_pack_tokens": "pack_tokens",
    "communities.report_pack_tokens": "pack_tokens",
    "llm.endpoints.*.timeout_s": "llm.endpoints.*.silence_timeout_s",
    "llm.patience_s": "llm.outage_timeout_s",
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
    "pack_units": "pack_tokens limits the units that share a call, and 0 gives each its own",
    "resolution.llm_band": _FIXED,
    "resolution.pairs_per_call": "pack_tokens limits the pairs that share a call, and 0 gives each its own",
    "resolution.threshold": _FIXED,
    "resolution.tiers": "all rules hold, and the summarise model is asked where they leave doubt: leave the key out",
    "retrieval.bridge_ranking": _FIDELITY,
    "retrieval.lean": "choose another retrieval.mode, such as local",
    "retrieval.lexical": _FIDELITY,
    "retrieval.map_reduce.concurrency": "llm.endpoints.NAME.max_concurrent limits the calls",
    "retrieval.map_reduce.reply_tokens": "llm.endpoints.NAME.max_reply_tokens limits the replies of an endpoint",
    "retrieval.map_reduce.seed": "records are shuffled in a fixed order",
    "retrieval.max_triples": _FIXED,
    "retrieval.source_fusion": _FIDELITY,
    "service.concurrency": "it follows from the embedder and the vector backend: leave the key out",
    "service.indexes.*.callers": "`indexes` of a caller in service.callers_file says which indexes the caller may ask",
    "service.indexes.*.map_reduce": "service.map_reduce holds for all indexes",
    "service.indexes.*.max_concurrent": "every index takes half of the requests that a process takes",
    "service.keepalive_s": _FIXED,
    "service.max_concurrent_retrievals": "it follows from the embedder and the vector backend: leave the key out",
    "service.max_connection_age_grace_s": _FIXED,
    "service.max_connection_age_s": _FIXED,
    "service.max_message_mib": _FIXED,
    "service.max_queue_wait_s": _FIXED,
    "service.max_wait_s": _FIXED,
    "service.metrics_public": "service.metrics_listen takes any address: leave the key out",
    "service.poll_s": _FIXED,
    "service.send_timeout_s": _FIXED,
    "service.state_dir": "each process counts callers' requests from its start",
    "service.traces_ratio": "set OTEL_TRACES_SAMPLER=parentbased_traceidratio and OTEL_TRACES_SAMPLER_ARG in the "
    "environment",
    "vectors.alias": "an alias in Milvus can be set by its own tools; leave the key out",
    "vectors.index": "it follows from the number of rows: leave the key out",
    "vectors.index_params": "they follow from the number of rows: leave the key out",
    "vectors.search_breadth": _FIXED,
    "vectors.tenant_prefix": "labels restrict what a caller sees without it, and a tenant may have an index of its own",
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


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PREFIX = "HIRAG__"


@dataclass(frozen=True)
class LoadedConfig:
    """A configuration and where each value that is no default came from (dotted path → origin)."""

    config: Config
    origins: Mapping[str, str]


def load_config(
    path: str | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, Any] | None = None,
    origin: str = "command line",
) -> LoadedConfig:
    """Return the effective configuration.

    Args:
        path: a YAML file, or None for defaults.
        overrides: dotted path → value; they win.
        origin: where the overrides come from, as errors name it.

    Raises:
        ConfigError: no such file, not YAML, an unknown key (with the nearest known one), a value out of bounds, or
            an environment variable that is not set.
    """
    data: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if path is not None:
        try:
            data = _substitute(_read_yaml(path), environ, path)
        except RecursionError:
            raise ConfigError(f"{path} has an anchor that holds itself") from None
        if isinstance(data.get("extraction"), str):  # so that keys of the section can be overridden
            data["extraction"] = long_form(data["extraction"])
        for key in _leaves(data):
            origins[key] = path
    for name in sorted(environ):
        if name.startswith(_PREFIX):
            dotted = ".".join(part.lower() for part in name[len(_PREFIX) :].split("__"))
            _set(data, dotted, _from_environment(environ[name]), name)
            origins[dotted] = f"environment {name}"
    for dotted, value in (overrides or {}).items():
        _set(data, dotted, value, origin)
        origins[dotted] = origin
    try:
        return LoadedConfig(Config.model_validate(data), origins)
    except ValidationError as error:
        raise ConfigError(_explain(error, origins, path or "the configuration")) from None


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}; `hirag-dist init` writes one") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    try:
        data = yaml.load(text, _UniqueKeys)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {_fault(error)}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values, not a {type(data).__name__}")
    return data


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML forbids it, and PyYAML takes the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return a node with keys and values, as they are written."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                problem = f"the key {key.value} is there twice, the second time"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            if key.tag != "tag:yaml.org,2002:merge":
                seen.add((key.tag, key.value))
        return node


def _fault(error: yaml.YAMLError) -> str:
    """Return the problem and its position, without the line itself, which may hold a secret."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return "it holds characters that YAML does not allow"
    mark = error.problem_mark or error.context_mark
    return f"{error.problem or error.context}" + (f" in line {mark.line + 1}, column {mark.column + 1}" if mark else "")


def _from_environment(text: str) -> Any:
    """Return a list, a mapping or null as YAML has them, anything else as text: the key's type says what it is."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if value is None or isinstance(value, (list, dict)) else text


def _substitute(value: Any, environ: Mapping[str, str], path: str, key: object = None) -> Any:
    """Return a value with the variables of the environment that its texts name; an empty `api_key` is none."""
    if isinstance(value, dict):
        return {name: _substitute(item, environ, path, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, environ, path) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if default is None and (name not in environ or (key == "api_key" and not environ[name].strip())):
            state = "empty" if name in environ else "not set"
            raise ConfigError(f"{path} uses ${{{name}}}, and {name} is {state} in the environment")
        return environ.get(name, default or "")

    return _VARIABLE.sub(replace, value)


def _set(data: dict[str, Any], dotted: str, value: Any, origin: str) -> None:
    *parents, last = dotted.split(".")
    here = data
    for part in parents:
        here = here.setdefault(part, {})
        if not isinstance(here, dict):
            raise ConfigError(f"{origin}: {dotted} goes into {part}, which is a value")
    here[last] = value


def _leaves(data: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in data.items():
        if isinstance(value, dict) and value:
            found.extend(_leaves(value, f"{prefix}{key}."))
        else:
            found.append(f"{prefix}{key}")
    return found


def _explain(error: ValidationError, origins: Mapping[str, str], default: str) -> str:
    """Return the faults, after the origins of their keys, or `default` for keys that nothing sets."""
    lines: dict[str, list[str]] = {}
    for fault in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            former = hint(fault["loc"])
            said = f"unknown key {where}{_nearest(fault['loc']) if former is None else f'; {former}'}"
        else:
            message = fault["msg"].removeprefix("Value error, ")
            said = f"{where}: {message}" if where else message
        named = _NAMED.match(fault["msg"])
        key = named[1] if named and named[1] in origins else where
        lines.setdefault(_origin(key, origins) or default, []).append(said)
    return "; ".join(f"{origin}: {'; '.join(dict.fromkeys(said))}" for origin, said in lines.items())


_NAMED = re.compile(r"Value error, Invalid ([\w.]+):")  # the key at fault, where a check compares several


def _origin(key: str, origins: Mapping[str, str]) -> str:
    """Return the origins of a key and of those below it, or else of the nearest section with any; empty for none."""
    while key:
        found = [origin for each, origin in origins.items() if each == key or each.startswith(f"{key}.")]
        if found:
            return ", ".join(dict.fromkeys(found))
        key = key.rpartition(".")[0]
    return ""


def _nearest(location: tuple[int | str, ...]) -> str:
    elsewhere = [path for path in _key_paths(Config) if path.rpartition(".")[2] == str(location[-1])]
    if len(elsewhere) == 1:
        return f"; did you mean {elsewhere[0]}?"
    model: Any = Config
    parts = list(location[:-1])
    if parts[:2] == ["llm", "endpoints"] and len(parts) > 2:
        model, parts = EndpointConfig, parts[3:]
    for part in parts:
        field = model.model_fields.get(str(part)) if _is_model(model) else None
        model = field.annotation if field is not None else None
    known = list(model.model_fields) if _is_model(model) else []
    close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}" if known else ""


def _key_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of all keys and sections."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        if _is_model(field.annotation):
            yield from _key_paths(cast(type[BaseModel], field.annotation), f"{prefix}{name}.")


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
