"""`python -m tools.docs`: write the generated pages; `--check`: freshness, links, and the strict build of the site.

`--screenshots` writes the pictures of the web page; they are not compared, since fonts and browsers differ.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tools.docs import (
    cli_reference,
    configuration,
    links,
    metrics_reference,
    openapi,
    proto_reference,
    python_api,
    screenshots,
)

ROOT = Path(__file__).parents[2]
PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/cli.md": cli_reference.page,
    "docs/reference/configuration.md": configuration.page,
    "docs/reference/proto.md": proto_reference.page,
    "docs/reference/metrics.md": metrics_reference.page,
    "docs/reference/python-api.md": python_api.page,
    "docs/reference/openapi.json": openapi.page,
    "hirag_dist/service/http_api/openapi.json": openapi.page,  # what the service sends
}


def main() -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a page is stale or a link is broken"
    )
    parser.add_argument(
        "--build", action="store_true", help="write the generated pages, then build the site into site/"
    )
    parser.add_argument(
        "--screenshots", action="store_true", help="write the pictures of the web page into docs/assets: needs Chromium"
    )
    options = parser.parse_args()
    if options.screenshots:
        return screenshots.write()
    if not options.check:
        write()
        return build() if options.build else 0
    problems = [*stale(), *links.faults()]
    print("\n".join(problems) or f"docs: {len(PAGES)} generated pages fresh, links whole")
    return bool(problems) | build()


def write() -> None:
    """Write the generated pages."""
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")


def stale() -> list[str]:
    """Return a line for each generated page that differs from what would be written now."""
    found = []
    for name, page in PAGES.items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != page():
            found.append(f"{name} is stale: run `python -m tools.docs`")
    return found


def build() -> int:
    """Build the site with warnings as errors and return the exit code."""
    if find_spec("zensical") is None:
        print("docs: zensical is not installed: pip install 'hirag_dist[dev]'", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, check=False, env=os.environ | {"NO_COLOR": "1"})
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
