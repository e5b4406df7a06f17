from __future__ import annotations

from hirag_dist.core.entities.verification import Verification, VerifiedEntity, parse_verification, verification_request
from hirag_dist.core.prompts.templates import DONE, Prompts
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply

TEXT = (
    "Ebenezer Scrooge was a miser in London, who counted his money and hated Christmas more than any other day. "
    "It rained. It rained again. The ghost of Jacob Marley came at night."
)


def verify(names: list[str], pairs: list[tuple[int, int]], text: str = TEXT) -> Verification:
    request = verification_request(text, names, pairs, Prompts(), ("person", "location", "concept"), None)
    return parse_verification(ChatReply(reply_to(request.messages, None)), names, pairs)


def test_candidates_of_the_text_are_kept_typed_and_described_in_short() -> None:
    found = verify(["Ebenezer Scrooge", "Prague", "London", "Jacob Marley"], [(0, 1), (0, 2), (2, 3)])
    assert found == Verification(
        (
            VerifiedEntity(0, "person", "Ebenezer Scrooge was a miser in London, who…"),
            VerifiedEntity(2, "location", "Ebenezer Scrooge was a miser in London, who…"),
            VerifiedEntity(3, "person", "The ghost of Jacob Marley came at night."),
        ),
        ((0, 2),),  # Prague is not there, and London and Marley are far apart
    )


def test_nothing_may_be_kept() -> None:
    assert reply_to(verification_request(TEXT, ["Prague"], [], Prompts(), ("x",), None).messages, None) == DONE


def test_a_text_without_spaces_is_described_in_few_characters() -> None:
    (one,) = verify(
        ["孙悟空"], [], "孙悟空是花果山水帘洞的美猴王，后来随唐僧往西天取经，一路降妖伏魔，神通广大。孙悟空笑。"
    ).entities
    assert len(one.description) <= 20
