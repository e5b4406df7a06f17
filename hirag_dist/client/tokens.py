"""Bearer tokens of a client."""

from __future__ import annotations

from pathlib import Path

from hirag_dist.errors import ConfigError


class TokenFile:
    """A bearer token in a file that may be replaced while it is used.

    Args:
        path: of the file; spaces and line ends around the token are not part of it.

    Raises:
        ConfigError: it cannot be read, or holds no token.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._version = self._stat()
        self._token = self._load()

    def token(self) -> str:
        """Return the token that is in the file now.

        If the file is missing or empty, as it is for a moment while it is replaced, the last token stays in use: the
        service reports when that one has expired.
        """
        try:
            version = self._stat()
            if version != self._version:
                self._token = self._load()
                self._version = version
        except ConfigError:
            pass
        return self._token

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise ConfigError(f"the token file {self._path} cannot be read: {error.strerror}") from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _load(self) -> str:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"the token file {self._path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"the token file {self._path} is no text") from error
        check_token(token, f"the token file {self._path}")
        return token


def check_token(token: str, what: str) -> None:
    """Check that a token can be sent in a header: gRPC fails without a reason on one that cannot.

    Args:
        token: the token.
        what: its name in the error's message.

    Raises:
        ConfigError: it is empty, or holds characters that a header cannot.
    """
    if not token:
        raise ConfigError(f"{what} is empty")
    if not token.isascii() or not token.isprintable():
        raise ConfigError(f"{what} must be one line of ASCII characters")
