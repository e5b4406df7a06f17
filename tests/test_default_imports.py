"""Tools around the product are imported by the commands that need them only, and packages of builds by builds."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

BUILDS = ("hirag_dist.indexing", "hirag_dist.readers", "hirag_dist.compute", "hirag_dist.execution.ray")
ASK = f"""
import hirag_dist.api.index, hirag_dist.cli.query
found = [name for name in sys.modules if name.startswith({BUILDS})]
assert not found, found
"""
SERVE = """
import hirag_dist.cli.serve
import hirag_dist.composition.serving
import hirag_dist.service.server, hirag_dist.service.access_log, hirag_dist.service.web.run
"""


def locked(name: str) -> set[str]:
    """Return the names of the packages in a file of requirements/."""
    text = (Path(__file__).parents[1] / "requirements" / name).read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE))


@pytest.mark.integration
def test_the_query_image_has_every_package_that_its_commands_import() -> None:
    absent = locked("image.txt") - locked("image-query.txt")
    assert absent > {"ray", "lxml", "pypdfium2"}
    owners = packages_distributions()
    blocked = {
        top for top, names in owners.items() if {re.sub(r"[-_.]+", "-", name).lower() for name in names} <= absent
    }
    code = f"import sys\nfor name in {sorted(blocked)}: sys.modules[name] = None\n{ASK}{SERVE}"
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
