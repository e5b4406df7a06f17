"""Extraction without a language model: entity finders, and the records of what they find."""

from hirag_dist.extraction.excerpts import quoted_sentences
from hirag_dist.extraction.factory import make_entity_finder
from hirag_dist.extraction.records import extracted
from hirag_dist.extraction.scripts import split_sentences

__all__ = ["extracted", "make_entity_finder", "quoted_sentences", "split_sentences"]
