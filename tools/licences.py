"""Fails when a library of the default install (requirements/run.txt) is under a copyleft licence, or states none.

Run by `make check`. Prints one line a fault.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements" / "run.txt"
COPYLEFT = re.compile(
    r"\b(?:[AL]?GPL|MPL|EPL|EUPL|CDDL|OSL|SSPL|BUSL|CC-BY-(?:SA|NC))"
    r"|GNU (?:Affero|General|Lesser|Library)|Mozilla Public|Eclipse Public|Commons Clause|Proprietary"
)
ALLOWED = {
    "certifi": "MPL-2.0: file-level copyleft, and it is used unchanged",
    "orjson": "MPL-2.0 AND (Apache-2.0 OR MIT): file-level copyleft, and it is used unchanged",
    "pathspec": "MPL-2.0: file-level copyleft, and it is used unchanged, by hatchling, at installation only",
}


def locked(lock: str) -> list[str]:
    """Return the names of the pinned distributions."""
    return re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==", lock, flags=re.MULTILINE)


def licence(name: str) -> str:
    """Return what a distribution says of its licence: the expression, else classifiers, else the free text."""
    fields = metadata(name)
    classifiers = [row.split("::")[-1].strip() for row in fields.get_all("Classifier", []) if row.startswith("License")]
    return fields.get("License-Expression") or "; ".join(classifiers) or fields.get("License") or ""


def fault(name: str) -> str | None:
    """Return what is wrong with a distribution's licence, or None."""
    try:
        stated = licence(name)
    except PackageNotFoundError:
        return "in the lock, but not installed"
    if not stated:
        return "states no licence"
    if name not in ALLOWED and (found := COPYLEFT.search(stated)):
        return f"copyleft ({found.group()}): {stated[:80]}"
    return None


def main() -> int:
    names = locked(LOCK.read_text(encoding="utf-8"))
    faults = [f"{name}: {problem}" for name in names if (problem := fault(name))]
    faults += [f"{name}: allowed in tools/licences.py, but no longer locked" for name in ALLOWED if name not in names]
    print("\n".join(faults) or f"licences: {len(names)} libraries in the default install, no fault")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
