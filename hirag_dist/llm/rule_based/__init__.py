"""The built-in model: deterministic rules that stand in for a language model where none is configured."""

from hirag_dist.llm.rule_based.model import ExtractiveModel, reply_to

__all__ = ["ExtractiveModel", "reply_to"]
