"""Extraction without a language model: names and noun phrases, and the records of what is found."""

from hirag_dist.extraction.builtin import find_names
from hirag_dist.extraction.records import extracted
from hirag_dist.extraction.scripts import split_sentences

__all__ = ["extracted", "find_names", "split_sentences"]
