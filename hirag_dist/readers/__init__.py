"""INPUT arguments → documents: find the files, open them, read text, title and labels out of each.

`find_inputs` lists the files; `read_source` yields a file's `Document`s one by one, and an `Unreadable` with
its reason for whatever gives none; `read_rows` yields records with all their fields. Nothing is dropped
silently, and nothing but `InputError` is raised.
"""

from hirag_dist.readers.discover import check_inputs, find_inputs
from hirag_dist.readers.document_builder import is_access_refusal, is_missing_text, is_whole_record
from hirag_dist.readers.encoding import clean_text
from hirag_dist.readers.model import Document, ReadOptions, SourceFile, Unreadable
from hirag_dist.readers.office_files import missing_package, missing_packages
from hirag_dist.readers.open import is_uri, is_utf8, public_uri
from hirag_dist.readers.read import read_source
from hirag_dist.readers.text_records import Row, read_rows

__all__ = [
    "Document",
    "ReadOptions",
    "Row",
    "SourceFile",
    "Unreadable",
    "check_inputs",
    "clean_text",
    "find_inputs",
    "is_access_refusal",
    "is_missing_text",
    "is_uri",
    "is_utf8",
    "is_whole_record",
    "missing_package",
    "missing_packages",
    "public_uri",
    "read_rows",
    "read_source",
]
