"""The indexes that the tests look at, and a browser."""

from tests.inspection.fixtures import empty, generated, make_tables, nasty, tiny
from tests.service.web.conftest import browser, visit

__all__ = ["browser", "empty", "generated", "make_tables", "nasty", "tiny", "visit"]
