"""Simulated prompt cache of a provider: prefixes in steps of tokens, as OpenAI counts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

MIN_TOKENS, STEP_TOKENS = 1024, 128
TOKEN_BYTES = 4
_MAX_PREFIXES = 65_536


def prefixes_of(model: str, tokens: bytes) -> tuple[bytes, ...]:
    """Return a digest of each prefix that can be cached: of 1,024 tokens, 1,152, ….

    Args:
        model: what else must be equal; another model has another cache.
        tokens: the whole prompt, uint32 a token.
    """
    if len(tokens) < MIN_TOKENS * TOKEN_BYTES:
        return ()
    running = hashlib.blake2b(model.encode("utf-8", "surrogatepass") + b"\0", digest_size=16)
    running.update(tokens[: MIN_TOKENS * TOKEN_BYTES])
    found = [running.digest()]
    step = STEP_TOKENS * TOKEN_BYTES
    for start in range(MIN_TOKENS * TOKEN_BYTES, len(tokens) - step + 1, step):
        running.update(tokens[start : start + step])
        found.append(running.digest())
    return tuple(found)


class PromptCache:
    """Remembers prefixes; the longest unused go first. Time does not count: entries do not grow old."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def take(self, prefixes: Sequence[bytes]) -> int:
        """Return how many tokens of a prompt came before, and remember the prompt.

        Args:
            prefixes: as `prefixes_of` gives them.
        """
        cached = 0
        for place in range(len(prefixes), 0, -1):
            if prefixes[place - 1] in self._known:
                cached = MIN_TOKENS + (place - 1) * STEP_TOKENS
                break
        for prefix in reversed(prefixes):  # the shortest last: it serves most prompts, and is to go last
            self._known[prefix] = None
            self._known.move_to_end(prefix)
        while len(self._known) > _MAX_PREFIXES:
            self._known.popitem(last=False)
        return cached
