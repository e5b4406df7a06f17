"""URIs of resources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.errors import InvalidQuery
from hirag_dist.wire.resource_uris import KINDS, ResourceAddress, parse_uri, resource_uri

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(TEXT.filter(lambda name: name != "default"), st.sampled_from(KINDS), TEXT)
def test_a_uri_leads_back_to_its_parts(index: str, kind: str, key: str) -> None:
    assert parse_uri(resource_uri(index, kind, key)) == ResourceAddress(index, kind, key)
    assert parse_uri(resource_uri("", kind, key)) == ResourceAddress("", kind, key)
    assert parse_uri(resource_uri(index)) == ResourceAddress(index)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "hirag://",
        "https://default/documents/d",
        "hirag://default/documents",
        "hirag://default/other/a",
        "hirag://default/documents/d?start=x",
        "hirag://[/documents/d",
    ],
)
def test_other_uris(uri: str) -> None:
    with pytest.raises(InvalidQuery, match="is no resource"):
        parse_uri(uri)
