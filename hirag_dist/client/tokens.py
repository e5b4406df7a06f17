"""Bearer tokens on the caller's side."""

from __future__ import annotations

from pathlib import Path

from hirag_dist.errors import ConfigError


class TokenFile:
    """A bearer token in a file, which may be replaced while it is used.

    Args:
        path: of the file; spaces and line ends around the token are not part of it.

    Raises:
        ConfigError: it cannot be read, or holds no token.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._seen = self._look()
        self._token = self._load()

    def token(self) -> str:
        """Return the token that is in the file now.

        A file that is gone or empty for a moment, as while it is written, leaves the last token in use: the service
        says soon enough when that one has expired.
        """
        try:
            seen = self._look()
            if seen != self._seen:
                self._token = self._load()
                self._seen = seen
        except ConfigError:
            pass
        return self._token

    def _look(self) -> tuple[int, int, int]:
        try:
            found = Path(self._path).stat()
        except OSError as error:
            raise ConfigError(f"the token file {self._path} cannot be read: {error.strerror}") from error
        return found.st_ino, found.st_mtime_ns, found.st_size

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
    """Check that a token can be sent: gRPC would fail on one that cannot without saying why.

    Args:
        token: it.
        what: how the error's message names it.

    Raises:
        ConfigError: it is empty, or holds what a header cannot.
    """
    if not token:
        raise ConfigError(f"{what} is empty")
    if not token.isascii() or not token.isprintable():
        raise ConfigError(f"{what} must be one line of ASCII characters")
