"""The recorded replies of the demo."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from hirag_dist import build_index, load_config
from hirag_dist.cli.demo import _write_config


@pytest.mark.integration
def test_every_request_of_the_sample_index_has_a_recorded_reply(tmp_path: Path) -> None:
    samples = Path(str(resources.files("hirag_dist.samples")))
    config = _write_config(tmp_path / "demo", samples / "replies.jsonl")
    result = build_index(samples / "corpus", tmp_path / "demo", config=load_config(config))
    models = {row["model"] for row in result.to_dict()["usage"] if row["role"] != "embed"}
    assert models == {"recorded:claude"}, "hirag_dist/samples/SOURCES.md says what to do"
    assert [layer["n_entities"] for layer in result.to_dict()["layers"]] == [273, 42, 4]
    assert result.complete
