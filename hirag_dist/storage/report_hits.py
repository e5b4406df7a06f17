"""File of the communities that past questions reached: JSON Lines with the hits of each, bounded in size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hirag_dist.errors import ConfigError
from hirag_dist.storage.file_locks import lock_file

MAX_COMMUNITIES = 100_000  # in a file; those with the fewest hits are left out


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


def add_hits(path: Path, hits: Mapping[str, int]) -> None:
    """Add hits to a file, which several processes may do at a time; it is made where it does not exist.

    Raises:
        ConfigError: the file is damaged.
        OSError: it cannot be written.
    """
    lock = lock_file(path.with_name(f".{path.name}.lock"), create=True, wait=True)
    try:
        total = read_hits(path) if path.exists() else {}
        for own, more in hits.items():
            total[own] = total.get(own, 0) + more
        kept = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:MAX_COMMUNITIES]
        new = path.with_name(f".{path.name}.new")
        rows = (json.dumps({"community_id": own, "hits": n}) for own, n in kept)
        new.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        new.replace(path)
    finally:
        if lock is not None:
            lock.release()
