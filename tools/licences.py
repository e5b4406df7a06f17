"""Check that no library of the default install (requirements/run.txt) has a copyleft licence, or states none.

Run by `make check`. Prints one line for each fault.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement

LOCK = Path(__file__).parents[1] / "requirements" / "run.txt"
COPYLEFT = re.compile(
    r"\b(?:[AL]?GPL|MPL|EPL|EUPL|CDDL|OSL|SSPL|BUSL|CC-BY-(?:SA|NC))"
    r"|GNU (?:Affero|General|Lesser|Library)|Mozilla Public|Eclipse Public|Commons Clause|Proprietary"
)
ALLOWED = {
    "chardetng-py": "MIT, by its licence file alone",
    "certifi": "MPL-2.0: file-level copyleft, and it is used unchanged",
    "orjson": "MPL-2.0 beside MIT: file-level copyleft, and pymilvus uses it unchanged",
    "pathspec": "MPL-2.0: file-level copyleft, and it is used unchanged, by hatchling, at installation only",
}


def locked(lock: str) -> list[str]:
    """Return the names of the pinned distributions that this platform installs."""
    pins = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*==[^\\\n]+)", lock, flags=re.MULTILINE)
    requirements = map(Requirement, pins)
    return [each.name for each in requirements if each.marker is None or each.marker.evaluate()]


def licence(name: str) -> str:
    """Return the licence that a distribution states: the expression, else classifiers, else the free text."""
    fields = metadata(name)

    def rows(field: str) -> list[str]:
        return fields.get_all(field) or []

    classifiers = [row.split("::")[-1].strip() for row in rows("Classifier") if row.startswith("License")]
    return "".join(rows("License-Expression")) or "; ".join(classifiers) or "".join(rows("License"))


def fault(name: str) -> str | None:
    """Return the fault of a distribution's licence, or None."""
    try:
        stated = licence(name)
    except PackageNotFoundError:
        return "in the lock, but not installed"
    if not stated and name not in ALLOWED:
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
