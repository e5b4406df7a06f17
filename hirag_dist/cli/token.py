"""`hirag-dist token`: a new bearer token, shown once."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from hirag_dist.cli._options import JsonOption
from hirag_dist.cli._output import emit, use_json
from hirag_dist.errors import ConfigError
from hirag_dist.service.auth.caller_registry import is_name

_BYTES = 32  # of randomness


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("token")(token)


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the caller.")],
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; default: never.")] = None,
    json: JsonOption = False,
) -> None:
    """Make a bearer token for a caller. It is shown once; the callers file has its hash."""
    use_json(json)
    if not is_name(name):
        raise ConfigError(f"{name!r} is not a valid caller name; a name has up to 64 letters, digits and . _ @ -")
    fresh = f"hirag_{secrets.token_urlsafe(_BYTES)}"
    digest = hashlib.sha256(fresh.encode()).hexdigest()
    until = None if days is None else (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    if json:
        emit({"name": name, "token": fresh, "sha256": digest, "expires": until})
        return
    print(f"The token, shown only now:\n\n  {fresh}\n")
    print("For the callers file (service.callers_file); add the token to the list if the caller exists already:\n")
    print(f'callers:\n  {name}:\n    tokens:\n      - sha256: "{digest}"')
    if until is not None:
        print(f"        expires: {until}")
    print("    labels: []  # of documents that it may see in addition to those without labels; all: everything")
