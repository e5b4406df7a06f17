"""File of the communities that past questions reached: JSON Lines with the hits of each, bounded in size."""

from __future__ import annotations

import json
from pathlib import Path

from hirag_dist.errors import ConfigError


def read_hits(path: str | Path) -> dict[str, int]:
    """Return the hits of communities by id.

    Raises:
        ConfigError: the file cannot be read, or is not such a file.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file of hits {path} cannot be read: {error}") from error
    found: dict[str, int] = {}
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row = json.loads(line)
            own, hits = row["community_id"], row["hits"]
        except (ValueError, KeyError, TypeError):
            own = hits = None
        if not isinstance(own, str) or type(hits) is not int or hits < 0:
            raise ConfigError(
                f"the file of hits {path} is damaged in line {number}: a line is "
                '{"community_id": "…", "hits": 1}; delete it, or leave the line out'
            )
        found[own] = found.get(own, 0) + hits
    return found
