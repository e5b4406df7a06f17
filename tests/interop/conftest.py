"""The indexes that the tests look at."""

from tests.inspection.fixtures import empty, generated, make_tables, nasty, tiny

__all__ = ["empty", "generated", "make_tables", "nasty", "tiny"]
