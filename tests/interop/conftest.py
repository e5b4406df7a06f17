"""The indexes that the tests look at."""

from tests.inspection.fixtures import empty, make_tables, nasty, tiny

__all__ = ["empty", "make_tables", "nasty", "tiny"]
