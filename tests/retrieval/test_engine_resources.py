"""Texts of records are made and counted once, within a number of characters."""

from __future__ import annotations

from hirag_dist.retrieval.engine_resources import RecordTextCache


def test_records_are_made_and_counted_once_and_the_oldest_are_forgotten() -> None:
    made: list[str] = []
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    def make(text: str) -> str:
        made.append(text)
        return text

    cache = RecordTextCache(count, max_chars=10)
    assert cache.get("local", 1, lambda *_: (0, 0), lambda form: make("abcd")) == ("abcd", 4)
    assert cache.get("local", 1, lambda *_: (0, 0), lambda form: make("else")) == ("abcd", 4)
    assert cache.get("bridge", 1, lambda *_: (7, 1), lambda form: make("wxyz")) == ("wxyz", 7)
    assert (made, counted) == (["abcd", "wxyz"], ["abcd"])
    cache.get("local", 2, lambda *_: (0, 0), lambda form: make("123"))  # no room: the oldest goes
    assert cache.get("bridge", 1, lambda *_: (7, 1), lambda form: make("never")) == ("wxyz", 7)
    assert cache.get("local", 1, lambda *_: (0, 0), lambda form: make("again")) == ("again", 5)


def test_views_share_what_is_stored_and_keep_what_is_rebuilt() -> None:
    stored = RecordTextCache(len)
    one, other = (RecordTextCache(len, stored=stored) for _ in range(2))
    assert one.get("local", 1, lambda *_: (0, 0), lambda form: "stored") == ("stored", 6)
    assert other.get("local", 1, lambda *_: (0, 0), lambda form: "never made") == ("stored", 6)
    assert one.rebuilt("local", 1, lambda form: "of one view") == ("of one view", 11)
    assert one.rebuilt("local", 1, lambda form: "never made") == ("of one view", 11)
    assert other.rebuilt("local", 1, lambda form: "of another") == ("of another", 10)
    assert other.get("local", 1, lambda *_: (0, 0), lambda form: "never made") == ("stored", 6)
