"""Texts of Debian packages: downloaded, unpacked, and read to JSON lines by the project's readers, a file a package."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.scale.packages import PACKAGES
from hirag_dist.core.text.tokens import encoding
from hirag_dist.readers import Document, ReadOptions, SourceFile, read_source

MAX_PACKAGE_TOKENS = 12_000_000  # so that no reference of one library is most of the corpus
MIN_CHARS, MAX_CHARS = 1000, 200_000
MIN_LETTERS = 0.55
_FORMATS = {".html": "html", ".htm": "html", ".txt": "txt", ".rst": "txt", ".md": "md", ".pod": "txt", ".page": "html"}
_LEFT_OUT = re.compile(
    r"_sources/|genindex|/search|/src/|print\.html|-all\.html|copyright|changelog|index-all|allclasses|"
    r"linux-doc-6\.1/html/|anarchism/markdown/|package-tree|/_static/"
)
_MAN = re.compile(r"\.[1-8][a-z]*(?:\.gz)?$")
_MACRO = re.compile(r"^[.'].*$|\\f.|\\[&|^/,]|\\-|\\\(..", re.MULTILINE)


def package_texts(cache: Path, workers: int = 2) -> list[Path]:
    """Return a file of JSON lines for each package: title, text, package and tokens; made once in a folder.

    A package that the system's archive does not have is left out.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers) as pool:
        made = list(pool.map(partial(_texts_of, cache), PACKAGES))
    return [path for path in made if path is not None]


def _texts_of(cache: Path, package: str) -> Path | None:
    path = cache / f"{package}.jsonl"
    if path.exists():
        return path
    archive = next(cache.glob(f"{package}_*.deb"), None)
    if archive is None:
        done = subprocess.run(["apt-get", "download", "-q", package], cwd=cache, capture_output=True, check=False)
        archive = next(cache.glob(f"{package}_*.deb"), None)
        if done.returncode or archive is None:
            return None
    part = path.with_suffix(".part")
    with tempfile.TemporaryDirectory(dir=cache) as folder, part.open("w", encoding="utf-8") as file:
        subprocess.run(["dpkg-deb", "-x", str(archive), folder], check=True)
        count = encoding("o200k_base").encode_ordinary
        left, seen = MAX_PACKAGE_TOKENS, set()
        for title, text in _documents(package, Path(folder)):
            key = hashlib.blake2b(text.encode(), digest_size=12).digest()
            if key in seen or not _is_prose(text):
                continue
            seen.add(key)
            tokens = len(count(text))
            left -= tokens
            line = {"title": title, "text": text, "package": package, "tokens": tokens}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            if left <= 0:
                break
    part.rename(path)
    return path


def _documents(package: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield titles and texts of the files below a folder in an order of their names' hashes."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    files.sort(key=lambda path: hashlib.blake2b(str(path.relative_to(folder)).encode()).digest())
    for path in files:
        name = str(path.relative_to(folder))
        if _LEFT_OUT.search(f"{package}/{name}"):
            continue
        for title, text in _read(path):
            for part in _parts(text):
                yield title or path.name, part


def _read(path: Path) -> Iterator[tuple[str, str]]:
    plain = path.name.removesuffix(".gz")
    if _MAN.search(path.name) or path.suffixes[-2:] == [".dict", ".dz"]:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix in (".gz", ".dz") else raw
        text = raw.decode("utf-8", "replace")
        yield plain, _MACRO.sub(" ", text) if _MAN.search(path.name) else text
        return
    form = _FORMATS.get(Path(plain).suffix, "") or ("txt" if path.parent.name == "texts" else "")
    if not form:
        return
    packing = "gz" if path.suffix == ".gz" else None
    source = SourceFile(path.as_uri(), str(path), path.stat().st_size, form, packing)
    for found in read_source(source, ReadOptions()):
        if isinstance(found, Document):
            yield found.title, found.text


def _parts(text: str) -> Iterator[str]:
    """Yield a text in parts of `MAX_CHARS` at most, cut at line ends where it has any."""
    start = 0
    while start < len(text):
        stop = start + MAX_CHARS
        if stop < len(text):
            stop = max(text.rfind("\n", start, stop), start + MAX_CHARS // 2)
        yield text[start:stop].strip()
        start = stop


def _is_prose(text: str) -> bool:
    if len(text) < MIN_CHARS:
        return False
    sample = text[:20_000]
    return sum(map(str.isalpha, sample)) >= MIN_LETTERS * len(sample)
