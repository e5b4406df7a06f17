from __future__ import annotations

from hirag_dist.llm.rule_based.finder import find_clusters
from hirag_dist.llm.rule_based.sentences import split_sentences

THAI = (
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย กรุงเทพมหานครตั้งอยู่บนแม่น้ำเจ้าพระยา แม่น้ำเจ้าพระยาไหลลงสู่อ่าวไทย "
    "ประเทศไทยมีพระมหากษัตริย์เป็นประมุข รัชกาลที่ 1 ทรงสถาปนากรุงเทพมหานคร"
)


def test_long_strings_that_recur_are_terms() -> None:
    found = {one.name: one for one in find_clusters(split_sentences(THAI))}
    assert {"กรุงเทพมหานคร", "แม่น้ำเจ้าพระยา", "ประเทศไทย"} <= found.keys()
    lines = split_sentences(THAI)
    assert all(name in lines[sentence] for name, one in found.items() for sentence, _ in one.places)
