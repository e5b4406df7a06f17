"""`hirag-dist status`: stages, counts, dead letters, snapshots, cost, documents."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hirag_dist.application.forget_evidence import pending_forget
from hirag_dist.application.index_result import READING, letter_groups, letter_places
from hirag_dist.cli._bill import (
    BILL_SINCE_BUILT,
    BILL_SO_FAR,
    LAST_UPDATE,
    bill_table,
    clustered_line,
    debt_line,
    missing_line,
    ratio_line,
    sent_line,
    update_line,
)
from hirag_dist.cli._build import group_line
from hirag_dist.cli._options import IndexOption, JsonOption, SnapshotOption, SourceOption
from hirag_dist.cli._output import VERSIONS, conclude_reading, emit, out, short, table
from hirag_dist.composition.build_records import (
    IN_SHORT,
    build_usage,
    dead_letters,
    last_build,
    last_finished,
    measured_speeds,
)
from hirag_dist.core.prompts.reply_validation import beginning, by_reason
from hirag_dist.core.retrieval.places import METADATA, is_record_file, record_name, unit_name
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, SnapshotError
from hirag_dist.execution.stage_results import load_drops
from hirag_dist.indexing.budget import known_bill
from hirag_dist.indexing.content_remarks import content_counts, remark_lines
from hirag_dist.llm.usage import dollars, total_cost, usage_rows
from hirag_dist.schemas import REJECTS
from hirag_dist.storage.layout import ALIASES, MANIFEST
from hirag_dist.storage.snapshot.documents import list_documents, tokens_per_corpus_token
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.manifest import parse_manifest
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, no_index
from hirag_dist.storage.store import Store

_SHOWN = 100
_OF_BUILD = ("action", "state", "error", "started_at", "ended_at", "limits", "snapshot")  # that --json shows
_OF_STAGE = ("stage", "state", "rows", "rows_done", "rejects", "dropped", "seconds", "calls")
_OF_UPDATE = ("number", "base", "documents", "other_changes", "descriptions", "summaries", "reports", "clustered_with")


def show_documents(snapshot: Snapshot, sources: Sequence[str], json: bool) -> None:
    """Print the documents whose path matches a source, all by default, with what came of each."""
    found = list_documents(snapshot, tuple(sources))
    if json:
        manifest = snapshot.manifest
        listed = [asdict(each) for each in found]
        emit({"snapshot": manifest.snapshot_id, "documents": listed, "missing_reports": manifest.missing_reports})
        return
    columns = ["id", "path", "title", "chunks", "tokens", "entities", "relations", "dead letters"]
    if any(each.metadata for each in found):
        columns.append("metadata")
    rows = [
        (
            each.document_id,
            record_name(each.uri, each.record),
            each.title,
            each.n_chunks,
            each.n_tokens,
            each.n_entities,
            each.n_relations,
            each.n_dead_letters,
            ", ".join(f"{name}: {_shown(value)}" for name, value in each.metadata.items()),
        )[: len(columns)]
        for each in found[:_SHOWN]
    ]
    out.print(table(count_noun(len(found), "document"), columns, rows, right=(0, 3, 4, 5, 6, 7), spare=(2, 4, 6)))
    if len(found) > _SHOWN:
        out.print(f"and {len(found) - _SHOWN:,} more; --source GLOB selects, --json lists all.")
    if snapshot.manifest.missing_reports:
        out.print(missing_line(snapshot.manifest.missing_reports))


def _shown(value: object) -> str:
    """Return a value of metadata for a person."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_SHOWN_CHARS = 80  # of the reply of a dead letter
_STATES = {
    "stopped": "stopped by its budget",
    "killed": "ended without a report (killed, or the machine failed); run it again to continue",
}


def status(
    index: IndexOption,
    letters: Annotated[
        bool,
        typer.Option(
            "--letters",
            help="Show the document, the place and the first words of the last reply of each dead letter. --json has "
            "the whole prompt and reply.",
        ),
    ] = False,
    documents: Annotated[
        bool, typer.Option("--documents", help="List the documents with their ids and what came of them.")
    ] = False,
    source: SourceOption = None,
    cost: Annotated[bool, typer.Option("--cost", help="Show only the bill: tokens and cost of each stage.")] = False,
    snapshot: SnapshotOption = None,
    json: JsonOption = False,
) -> None:
    """Show the contents of an index, its last build, its dead letters, its documents and its cost."""
    store = Store(index)
    build = last_build(store)
    current = current_id(store)
    if source and not documents:
        raise ConfigError("--source selects documents: give --documents with it")
    if cost and build is not None and current is None and snapshot is None:
        usage = build_usage(build)
        if json:
            emit({"snapshot": None, "usage": usage, "tokens_per_corpus_token": None})
        else:
            out.print(bill_table(usage, BILL_SO_FAR))
        return
    if documents or cost:
        opened = open_current(store, snapshot)
        if cost:
            show_bill(opened, json)
        else:
            show_documents(opened, source or (), json)
        conclude_reading(opened.fallback)
        return
    if snapshot is not None:
        raise ConfigError("--snapshot is about documents or a bill: give --documents or --cost with it")
    if build is None and current is None:
        raise no_index(store)
    forgetting = pending_forget(store)
    found = dead_letters(store, build, load_drops(store), REJECTS.names if letters or json else IN_SHORT)
    still_open = [letter for letter in found if letter["dropped"] is None]
    report: dict[str, Any] = {
        "index": store.uri,
        "current": current,
        "fallback": None,
        "snapshot": None,
        "build": build,
        "last_finished": None if build is not None and build["state"] == "done" else last_finished(store),
        "snapshots": _snapshots(store),
        "forget": None if forgetting is None else asdict(forgetting),
        "dead_letters": len(still_open),
        "letters": found,
        "usage": [],
        "usage_so_far": [] if build is None or build["state"] == "done" else build_usage(build),
        "content": None,
        "missing_reports": None,
        "tokens_per_corpus_token": None,
        "update": None,
        "debt": {},
    }
    if current is not None:
        opened = open_current(store)
        report["fallback"] = opened.fallback or None
        report["snapshot"] = opened.manifest.snapshot_id
        report["usage"] = usage_rows(opened.table("usage"))
        report["content"] = content_counts(opened.manifest)
        report["missing_reports"] = opened.manifest.missing_reports
        if note := opened.manifest.notes.get("update"):
            report["update"] = {name: note[name] for name in _OF_UPDATE if name in note} | note.get("cost", {})
            report["debt"] = note.get("debt", {})
        report["tokens_per_corpus_token"] = tokens_per_corpus_token(opened, report["usage"])
    stages, reasons = ([letter[name] for letter in still_open] for name in ("stage", "reason"))
    groups = letter_groups(stages, reasons, report["usage_so_far"] or report["usage"])
    report["letters_by_reason"] = [group.to_dict() for group in groups]
    if letters or json:
        places = letter_places(store, build, current, [letter["unit_id"] for letter in found])
        for letter in found:
            letter["place"] = places.get(letter["unit_id"])
    if json:
        emit(report | {name: report[name] and _in_short(report[name]) for name in ("build", "last_finished")})
    else:
        _show(report, letters)
    conclude_reading(report["fallback"] or "")


def _in_short(build: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a build without its configuration and what only a retry needs, for --json."""
    stages = [{name: stage[name] for name in _OF_STAGE if name in stage} for stage in build.get("stages", ())]
    told = {name: build[name] for name in _OF_BUILD if name in build}
    told |= {"inputs": _inputs(build), "this_run": build.get("sent"), "stages": stages}
    return told | ({"attempt": _in_short(build["attempt"])} if "attempt" in build else {})


def show_bill(snapshot: Snapshot, json: bool) -> None:
    """Print what an index has cost since it was built from nothing, by stage, role and model."""
    usage, is_whole = known_bill(snapshot)
    ratio = tokens_per_corpus_token(snapshot, usage)
    if json:
        emit({"snapshot": snapshot.manifest.snapshot_id, "usage": usage, "tokens_per_corpus_token": ratio})
        return
    out.print(bill_table(usage, BILL_SINCE_BUILT if is_whole else LAST_UPDATE))
    if ratio is not None:
        out.print(ratio_line(ratio))


def _snapshots(store: Store) -> list[dict[str, Any]]:
    """Return the snapshots of an index, newest first; those whose time is not known are last."""
    found: list[dict[str, Any]] = []
    for name in store.names("snapshots"):
        folder = f"snapshots/{name}"
        if not store.exists(f"{folder}/{MANIFEST}"):
            found.append({"snapshot": name, "state": "never finished"})
            continue
        try:
            manifest = parse_manifest(store.read_bytes(f"{folder}/{MANIFEST}"), folder)
        except SnapshotError as error:
            found.append({"snapshot": name, "state": str(error)})
            continue
        state = "complete" if manifest.complete else "incomplete"
        found.append({"snapshot": name, "state": state, "created_at": manifest.created_at, "counts": manifest.counts})
    return sorted(found, key=lambda one: one.get("created_at", ""), reverse=True)


def _show(report: dict[str, Any], letters: bool) -> None:
    build = report["build"]
    if build is not None:
        out.print(f"Last build: {_build_line(build)}")
        if line := _window_line(build):
            out.print(line)
        if build["stages"]:
            out.print(_stage_table(build["stages"], build["state"]))
        for line in _arrived_lines(build["stages"]):
            out.print(line)
        if build.get("attempt"):
            out.print(f"After it, before any stage: {_build_line(build['attempt'])}")
    finished = report["last_finished"]
    if finished is not None:
        out.print(f"Last finished build: {_build_line(finished)}")
    if report["forget"] is not None:
        _show_forget(report["forget"])
    snapshots = [
        (
            ("→ " if one["snapshot"] == report["current"] else "  ") + one["snapshot"],
            one["state"],
            one.get("created_at"),
            (one.get("counts") or {}).get("entities"),
            (one.get("counts") or {}).get("reports"),
        )
        for one in report["snapshots"]
    ]
    if snapshots:
        columns = ["snapshot", "state", "created", "entities", "reports"]
        out.print(table("Snapshots, newest first (→ is served)", columns, snapshots, right=(3, 4), spare=(4, 2)))
    if report["fallback"]:
        out.print(
            f"[yellow]Snapshot {report['current'] or 'named by `current`'} cannot be read, and {report['snapshot']} is "
            f"used in its place.[/yellow] To go back to that one, write its id into {report['index']}/current; "
            "`hirag-dist index INPUT` with all documents makes a new one."
        )
    served: dict[str, Any] = next((one for one in report["snapshots"] if one["snapshot"] == report["snapshot"]), {})
    if (served.get("counts") or {}).get(ALIASES):
        names = count_noun(served["counts"][ALIASES], "name is", "names are")
        out.print(f"Entity resolution: {names} another name's entity; `hirag-dist inspect` shows some.")
    for line in remark_lines(report["content"]) if report["content"] else ():
        out.print(line)
    update = report["update"]
    if update is not None:
        out.print(
            f"{update_line(update['number'], update['documents'], update.get('other_changes', ()))} {debt_line(report)}"
        )
        if line := clustered_line(update):
            out.print(line)
    if report["missing_reports"]:
        out.print(missing_line(report["missing_reports"]))
    _show_letters(report, letters)
    if build is not None and build["state"] != "done" and (served.get("counts") or {}).get("rejects"):
        out.print(f"The snapshot being served has {count_noun(served['counts']['rejects'], 'dead letter')}.")
    if usage := report["usage_so_far"] or report["usage"]:
        of_run = f"Bill of the run that made snapshot {report['snapshot']}: what these replies cost, whenever paid"
        out.print(bill_table(usage, BILL_SO_FAR if report["usage_so_far"] else of_run))
    if report["tokens_per_corpus_token"] is not None and not (update and update["number"]):
        out.print(f"The snapshot being served: {ratio_line(report['tokens_per_corpus_token'])}")


def _show_forget(pending: dict[str, Any]) -> None:
    documents = count_noun(len(pending["documents"]), "removed document is", f"removed {VERSIONS} are")
    old = count_noun(len(pending["snapshots"]), "old snapshot")
    state = f"{old} with them to be removed by `prune`" if pending["verified"] else "run `remove --forget` again"
    out.print(f"{documents} still to be forgotten, since {pending['since']}: {state}.")
    for problem in pending["problems"]:
        out.print(f"  {problem}", markup=False)


def _build_line(build: dict[str, Any]) -> str:
    what = " ".join([build.get("action", "index"), *_inputs(build)])
    state = _STATES.get(build["state"], build["state"])
    said = f": {build['error']}" if build.get("error") else ""
    who = "Its finished tasks" if any("calls" in stage for stage in build.get("stages", ())) else "It"
    sent = f" {who} {sent_line(build['sent'])}." if build.get("sent") else ""
    return f"{what}, begun {build['started_at']}, {state}{said}.{sent}".replace("[", "\\[")


def _inputs(build: Mapping[str, Any]) -> list[str]:
    given = build.get("given") or {}
    return [*given.get("inputs", ()), *filter(None, [given.get("folder")])]


def _window_line(build: dict[str, Any]) -> str:
    """Return a line about the models' windows and speeds in a build; "" where neither is known."""
    windows = (build.get("decisive") or {}).get("windows") or {}
    known = [f"window of {role} {window:,} tokens" for role, window in windows.items()]
    speeds = measured_speeds(build["stages"])
    known += [f"{name} about {short(speed)} tokens a second" for name, speed in speeds.items()]
    return f"Models: {', '.join(known)}." if known else ""


def _arrived_lines(stages: list[dict[str, Any]]) -> list[str]:
    """Return the replies of stages with unfinished tasks, whose usage is not in the table yet."""
    calls = {stage["stage"]: stage["calls"] for stage in stages if stage.get("calls", {}).get("answered")}
    return [
        f"{name}: {count_noun(own['answered'], 'reply', 'replies')} arrived in that run, {short(own['tokens'])} tokens "
        "(those of finished tasks included); they are stored and not paid again."
        for name, own in calls.items()
    ]


def _stage_table(stages: list[dict[str, Any]], build_state: str) -> Any:
    """Return the stages as a table; in a build that has ended no stage runs any more."""
    rows = []
    for stage in _steps_as_one(stages):
        usage = stage["usage"]
        tokens = sum(row["input_tokens"] + row["output_tokens"] for row in usage)
        done = stage.get("rows_done", stage["rows"])
        state = _state(stage)
        if state == "running" != build_state:
            state = "not finished"
        rows.append(
            (
                stage["stage"],
                stage["rows"] if done == stage["rows"] else f"{done:,}/{stage['rows']:,}",
                stage["rejects"],
                short(tokens) if tokens else None,
                dollars(total_cost(row["cost_usd"] for row in usage)) if tokens else None,
                sum(row["rate_limited"] for row in usage) if tokens else None,
                f"{stage['seconds']:.2f} s" if state == "done" else state,
            )
        )
    columns = ["stage", "units", "dead", "tokens", "cost", "429", "time"]
    return table("Stages", columns, rows, right=(1, 2, 3, 4, 5, 6), spare=(5,))


def _state(stage: dict[str, Any]) -> str:
    return str(stage.get("state", "kept" if stage["kept"] else "done"))


def _steps_as_one(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stages with finished steps of one ("merge layer 1: links", "merge layer 1: entities", …) added up.

    A stage that follows a step of its own ("unique documents: by key", "unique documents") is one with it, finished or
    not.
    """
    joined: list[dict[str, Any]] = []
    for stage in stages:
        name = stage["stage"].partition(": ")[0]
        last, is_step = joined[-1] if joined else None, name != stage["stage"]
        is_same = last is not None and last["stage"] == name
        if last is not None and is_same and (not is_step or _state(stage) == _state(last) != "stopped"):
            joined[-1] = (last if is_step else stage) | {
                "rejects": last["rejects"] + stage["rejects"],
                "seconds": last["seconds"] + stage["seconds"],
                "usage": [*last["usage"], *stage["usage"]],
            }
        else:
            joined.append(stage | {"stage": name} if _state(stage) in ("done", "kept") else stage)
    return joined


def _show_letters(report: dict[str, Any], each: bool) -> None:
    """Show the open dead letters by reason, each with a line of its own on request, and the number of dropped ones."""
    letters = report["letters"]
    if not letters:
        return
    still_open = [letter for letter in letters if letter["dropped"] is None]
    out.print(f"[bold]Dead letters: {len(still_open):,} open, {len(letters) - len(still_open):,} dropped[/bold]")
    members = list(by_reason(letter["reason"] for letter in still_open).values())
    for group, positions in zip(report["letters_by_reason"], members, strict=True):
        out.print(group_line(group), markup=False)
        for position in positions if each else ():
            out.print(f"  {letter_line(still_open[position])}", markup=False)
    for letter in letters if each else ():
        if letter["dropped"] is not None:
            gone = letter["dropped"]
            why = f": {gone['why']}" if gone["why"] else ""
            out.print(f"dropped by {gone['by']} at {gone['at']}{why}", markup=False)
            out.print(f"  {letter_line(letter)}", markup=False)
    if not each:
        where = shlex.quote(report["index"])
        out.print(f"`hirag-dist status --letters --index {where}` shows the place and the reply of each.")


def letter_line(letter: Mapping[str, Any]) -> str:
    """Return the place of a dead letter, a row of REJECTS with `place`, and the first words of its reply."""
    place = letter.get("place")
    where = letter["unit_id"]
    if letter["stage"] in READING:
        is_first = letter["stage"] == METADATA and is_record_file(where)  # metadata are those of a record
        where = unit_name(f"{where}#0" if is_first else where)
    if place is not None:
        name = record_name(place["uri"], place["record"]) if place["uri"] else place["document_id"]
        titled = f" ({place['title']})" if place["title"] and place["title"] not in name else ""
        where = f"{name}{titled}, chunk {place['position'] + 1:,}, characters {place['start']:,} to {place['end']:,}"
    tries = count_noun(letter["attempts"], "try", "tries")
    said = f': "{beginning(letter["reply"], _SHOWN_CHARS)}"' if letter["reply"] else ""
    return f"{letter['stage']}: {where}, {letter['unit_id'] + ', ' if place is not None else ''}{tries}{said}"
