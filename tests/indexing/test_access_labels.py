"""Label data of builds: mentions by document, parts with vectors, the clusters behind summaries."""

from __future__ import annotations

import numpy as np

from tests.labelled_builds import build
from tests.toy_builds import LAYER_0_ALONE, LONG, Bench, rows

PUBLIC = "Scrooge/person: A miser.\nMarley/person: A partner.\nScrooge + Marley: They trade. 3"
SECRET = "SCROOGE/person: A smuggler.\nMarley/spy: Not dead.\nLe Havre/location: A port.\nSCROOGE + Marley: They spy. 4"
OTHER = "Scrooge/person: A miser.\nGhost/person: It haunts.\nScrooge + Ghost: It visits. 2"


def test_mentions_of_what_several_label_sets_speak_of(bench: Bench) -> None:
    snapshot = build(bench, [(PUBLIC, []), (SECRET, ["secret"]), (OTHER, [])], **LAYER_0_ALONE)
    names = {row["entity_id"]: row["name"] for row in rows(snapshot, "entities")}
    labels = {row["document_id"]: row["labels"] for row in rows(snapshot, "documents")}
    of_chunk = {row["chunk_id"]: labels[row["document_id"]] for row in rows(snapshot, "chunks")}
    told = [
        (names[row["entity_id"]], row["name"], row["type"], row["description"], of_chunk[row["chunk_id"]])
        for row in rows(snapshot, "entity_mentions")
    ]
    assert sorted(told) == [
        ("Marley", "Marley", "person", "A partner.", []),
        ("Marley", "Marley", "spy", "Not dead.", ["secret"]),
        ("Scrooge", "SCROOGE", "person", "A smuggler.", ["secret"]),
        ("Scrooge", "Scrooge", "person", "A miser.", []),
        ("Scrooge", "Scrooge", "person", "A miser.", []),
    ], "nothing of the Ghost or Le Havre: each is in documents of one label set"
    stated = [(row["description"], row["strength"], of_chunk[row["chunk_id"]]) for row in rows(snapshot, "statements")]
    assert sorted(stated) == [("They spy.", 4.0, ["secret"]), ("They trade.", 3.0, [])]


def test_each_label_set_gives_a_mixed_entity_a_part_with_a_vector(bench: Bench) -> None:
    snapshot = build(bench, [(PUBLIC, []), (SECRET, ["secret"]), (OTHER, [])], **LAYER_0_ALONE)
    names = [row["name"] for row in rows(snapshot, "entities")]
    parts = {
        (names[row], label_set): vector
        for row, label_set, vector in zip(
            snapshot.array("vectors/part_entities"),
            snapshot.array("vectors/part_sets"),
            snapshot.array("vectors/parts"),
            strict=True,
        )
    }
    assert set(parts) == {("Marley", 0), ("Marley", 1), ("Scrooge", 0), ("Scrooge", 1)}
    without = build(Bench(bench.folder / "public"), [(PUBLIC, []), (OTHER, [])], **LAYER_0_ALONE)
    own = dict(zip((row["name"] for row in rows(without, "entities")), without.entity_vectors, strict=True))
    for name in ("Marley", "Scrooge"):
        np.testing.assert_array_equal(parts[name, 0], own[name], "as if the hidden document were not there")


def test_names_that_were_resolved_to_one_entity_have_one_entitys_mentions(bench: Bench) -> None:
    public = "WHO/organization: The World Health Organization (WHO) gives advice.\nGeneva/location: A city.\n"
    secret = "World Health Organization/organization: An agency.\nGeneva/location: A lake.\n"
    meeting = "{} + Geneva: It sits there. 3"
    documents = [
        (public + meeting.format("WHO"), []),
        (secret + meeting.format("World Health Organization"), ["secret"]),
    ]
    snapshot = build(bench, documents, resolution={"enabled": True}, **LAYER_0_ALONE)
    assert [row["name"] for row in rows(snapshot, "aliases")]
    mentions = rows(snapshot, "entity_mentions")
    assert len({row["entity_id"] for row in mentions}) == 2
    assert {row["name"] for row in mentions} == {"WHO", "World Health Organization", "Geneva"}
    (relation,) = {row["relation_id"] for row in rows(snapshot, "statements")}
    assert relation in {row["relation_id"] for row in rows(snapshot, "relations")}
    assert set(snapshot.array("vectors/part_entities")) == {0, 1}


def test_summaries_name_the_clusters_they_were_made_from(bench: Bench) -> None:
    snapshot = build(bench, [(LONG, ["a"])], lambda request: None)
    clusters: dict[str, set[str]] = {}
    for row in rows(snapshot, "clusters"):
        clusters.setdefault(row["cluster_id"], set()).add(row["entity_id"])
    sources: dict[str, set[str]] = {}
    for row in rows(snapshot, "summary_sources"):
        sources.setdefault(row["entity_id"], set()).update(clusters[row["cluster_id"]])
    above = {row["entity_id"] for row in rows(snapshot, "entities") if row["layer"]}
    assert set(sources) == above
    for row in rows(snapshot, "relations"):
        if row["kind"] == "summary":
            assert row["source_id"] in sources[row["target_id"]]
    assert rows(snapshot, "entity_mentions") == []
    assert not bench.result.manifest.content.keys() & {"vectors/parts"}
