"""Print a software bill of materials of the installed packages: CycloneDX 1.5, JSON, in a reproducible order.

Nothing but the standard library, run by the Python whose packages are meant.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, distributions, version
from typing import Any


def bill() -> dict[str, Any]:
    """Return the bill of materials, without time and serial number, so that equal images have equal bills."""
    found = {_name(each): each for each in distributions()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "hirag-dist", "version": version("hirag-dist")}},
        "components": [_component(name, each) for name, each in sorted(found.items())],
    }


def _component(name: str, found: Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{found.version}"
    made: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": found.version, "purl": purl}
    said = found.metadata
    licence = said.get("License-Expression") or _classified(said.get_all("Classifier") or [])
    if licence:
        made["licenses"] = [{"license": {"name": licence}}]
    return made


def _name(found: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()


def _classified(classifiers: list[str]) -> str:
    licences = [each.rsplit(" :: ", 1)[-1] for each in classifiers if each.startswith("License :: ")]
    return " AND ".join(licences)


if __name__ == "__main__":
    print(json.dumps(bill(), indent=1))
