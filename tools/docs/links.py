"""Checks of the documentation's links: pages, anchors, paths of the repository and the navigation."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(```|~~~)")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
_CODE = re.compile(r"`[^`]*`")
_PATH = re.compile(r"(?<![\w/.-])(?:hirag_dist|benchmarks|tests|tools|deploy|proto|examples|requirements)/[\w./-]*\w")
_PAGE = re.compile(r"(?<![\w/.-])docs/([\w/-]+\.md)(#[\w-]+)?")


def faults() -> list[str]:
    """Return a line for each fault in pages, Markdown files of the root, CODEOWNERS, navigation, mentions of pages."""
    files = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / ".github/CODEOWNERS"]
    found = [fault for path in files for fault in _file_faults(path)]
    return [*found, *_navigation_faults(), *_mention_faults()]


def _file_faults(path: Path) -> Iterator[str]:
    where = path.relative_to(ROOT)
    for number, line, fenced in _lines(path):
        for mentioned in _PATH.findall(line):
            if not (ROOT / mentioned).exists() and not _generic(mentioned):
                yield f"{where}:{number}: no such file in the repository: {mentioned}"
        if fenced:
            continue
        for target in _LINK.findall(_CODE.sub("", line)):
            if problem := _link_fault(path, target):
                yield f"{where}:{number}: {problem}: {target}"


def _generic(mentioned: str) -> bool:
    """Return True for a path that is an example or a built artefact, which the repository does not hold."""
    return mentioned.startswith(("tools/helm/bin", "tools/helm/download")) or mentioned.endswith(("/NAME", "/X"))


def _link_fault(path: Path, target: str) -> str | None:
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    page = (path.parent / name).resolve() if name else path
    if not page.exists():
        return "the target does not exist"
    if path.is_relative_to(DOCS) and not page.is_relative_to(DOCS):
        return "the target is not part of the site: give the path as code"
    if anchor and page.suffix == ".md" and anchor not in anchors(page):
        return "the anchor does not exist"
    return None


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as Python-Markdown names them."""
    found: dict[str, int] = {}
    names = set()
    for _, line, fenced in _lines(page):
        if fenced or not (heading := re.match(r"^#{1,6} (.+?)\s*$", line)):
            continue
        slug = slugify(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]))
        found[slug] = found.get(slug, -1) + 1
        names.add(slug if not found[slug] else f"{slug}_{found[slug]}")
    return frozenset(names)


def slugify(heading: str) -> str:
    """Return the anchor of a heading.

    >>> slugify("A *w/o* `--batch`, 2")
    'a-wo-batch-2'
    """
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "").replace("*", "")).strip().lower()
    return re.sub(r"[\s-]+", "-", plain)


def _lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield (number, line, whether it is in a fenced block) of a Markdown file."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if _FENCE.match(line.strip()):
            fenced = not fenced
            continue
        yield number, line, fenced


def _navigation_faults() -> Iterator[str]:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = list(_entries(settings["nav"]))
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    yield from (f"mkdocs.yml: no such page: {name}" for name in sorted(set(named) - there))
    missing = {name for name in there - set(named) if not name.startswith("research/")}  # these are linked, not listed
    yield from (f"docs/{name}: is not in the navigation of mkdocs.yml" for name in sorted(missing))
    yield from (
        f"mkdocs.yml: {name} is named twice" for name in sorted({name for name in named if named.count(name) > 1})
    )


def _entries(nav: Any) -> Iterator[str]:
    for item in nav.values() if isinstance(nav, dict) else nav:
        if isinstance(item, str):
            yield item
        else:
            yield from _entries(item)


def _mention_faults() -> Iterator[str]:
    """Yield a fault for each `docs/PAGE.md#anchor` in a tracked file that names no page or heading."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if name.startswith("docs/") or path.suffix in (".xz", ".parquet", ".png") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        for page, anchor in _PAGE.findall(text) if "docs/" in text else ():
            target = DOCS / page
            if page in _FOREIGN:
                continue
            if not target.exists():
                yield f"{name}: no such page: docs/{page}"
            elif anchor and anchor[1:] not in anchors(target):
                yield f"{name}: no such heading: docs/{page}{anchor}"


_FOREIGN = {"query/local_search.md", "planted.md", "PAGE.md"}  # pages of other projects, and examples
