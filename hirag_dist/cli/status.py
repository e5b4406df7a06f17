"""`hirag-dist status`: stages, counts, dead letters, snapshots, bill."""

from __future__ import annotations

from typing import Any

import typer

from hirag_dist.cli.index import bill_table
from hirag_dist.cli.options import IndexOption, JsonOption
from hirag_dist.cli.output import emit, out, table, use_json
from hirag_dist.errors import SnapshotError, SnapshotNotFound
from hirag_dist.index.layout import BUILD, MANIFEST
from hirag_dist.index.manifest import parse_manifest
from hirag_dist.index.reader import current_id, open_snapshot
from hirag_dist.index.store import Store


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(index: IndexOption, json: JsonOption = False) -> None:
    """Show what an index folder holds and how its last build went."""
    use_json(json)
    store = Store(index)
    build = store.read_json(BUILD) if store.exists(BUILD) else None
    current = current_id(store)
    if build is None and current is None:
        raise SnapshotNotFound(
            f"{store.uri} holds no index; build one with `hirag-dist index INPUT --index {store.uri}`"
        )
    report: dict[str, Any] = {"index": store.uri, "current": current, "build": build, "snapshots": _snapshots(store)}
    if current is not None:
        snapshot = open_snapshot(store)
        report["usage"] = snapshot.table("usage").to_pylist()
        report["dead_letters"] = [
            {key: row[key] for key in ("stage", "unit_id", "reason", "attempts")}
            for row in snapshot.table("rejects").to_pylist()
        ]
    if json:
        emit(report)
    else:
        _show(report)


def _snapshots(store: Store) -> list[dict[str, Any]]:
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
    return found


def _show(report: dict[str, Any]) -> None:
    build = report["build"]
    if build is not None:
        said = f": {build['error']}" if build.get("error") else ""
        out.print(f"Last build: {build['state']}{said} (began {build['started_at']})")
        rows = [
            (s["stage"], s["rows"], s["rejects"], "kept" if s["kept"] else f"{s['seconds']:.2f} s")
            for s in build["stages"]
        ]
        out.print(table("Stages", ["stage", "units", "dead letters", "time"], rows, right=(1, 2, 3)))
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
    out.print(
        table("Snapshots (→ is served)", ["snapshot", "state", "created", "entities", "reports"], snapshots, (3, 4))
    )
    letters = report.get("dead_letters") or []
    if letters:
        shown = [(one["stage"], one["unit_id"], one["attempts"], one["reason"]) for one in letters[:50]]
        out.print(table(f"Dead letters ({len(letters):,})", ["stage", "unit", "tries", "reason"], shown, (2,)))
    if report.get("usage"):
        out.print(bill_table(report["usage"]))
