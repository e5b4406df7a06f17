"""The maximum tokens of a reply that a request names, so that prompt and reply fit the model's context window."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hirag_dist.core.windows import RATIO, reply_room
from hirag_dist.llm.token_estimate import MAX_REPLY_TOKENS

MESSAGE_TOKENS = 4  # what the chat template puts around a message, about


class ReplyLimit:
    """Limits of the replies of one endpoint, which learn how its model's tokenizer counts against the local one."""

    def __init__(self, window: int | None, count_tokens: Callable[[str], int]) -> None:
        """Begin with the usual ratio.

        Args:
            window: Tokens of a prompt and its reply together; None where it is not known: nothing is limited.
            count_tokens: Counts the tokens of a text with the local tokenizer.
        """
        self._window = window
        self._count = count_tokens
        self._ratio = RATIO

    def of(self, texts: Sequence[str], wanted: int | None) -> int | None:
        """Return the maximum tokens of a reply: what is wanted, as far as the window has room; None for no limit.

        Args:
            texts: Messages of the prompt.
            wanted: Maximum tokens that the request asks for; None where it names none.
        """
        if self._window is None:
            return wanted
        enough = MAX_REPLY_TOKENS if wanted is None else wanted
        most = sum(len(text) + MESSAGE_TOKENS for text in texts)  # few tokens are shorter than a character
        if reply_room(self._window, most) >= enough:
            return wanted
        room = reply_room(self._window, self._counted(texts), self._ratio)
        return wanted if room >= enough else room

    def learn(self, texts: Sequence[str], reported: int) -> None:
        """Note how many tokens the endpoint counted in a prompt."""
        if self._window is None or 4 * sum(map(len, texts)) < self._window:  # far from the end: not worth counting
            return
        self._ratio = max(self._ratio, reported / max(self._counted(texts), 1))

    def _counted(self, texts: Sequence[str]) -> int:
        return sum(self._count(text) + MESSAGE_TOKENS for text in texts)
