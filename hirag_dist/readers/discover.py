"""INPUT arguments → the files to read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from hirag_dist.errors import InputError
from hirag_dist.readers.model import SourceFile
from hirag_dist.readers.open import explain
from hirag_dist.readers.uris import FORMATS, is_uri, public_uri, split_name

_MAGIC = re.compile(r"[*?\[]")
_REMOTE_MAGIC = re.compile(r"[*\[]")
_SUPPORTED = ".txt .md .html .pdf .jsonl .json .parquet .csv .tsv, also as .gz .bz2 .xz .zst .lz4"


def find_inputs(inputs: Sequence[str]) -> list[SourceFile]:
    """Return the files that INPUT arguments name, each once, sorted by URI.

    An input is a file, a folder (with all that is below it), a glob, or a URI of either kind that pyarrow.fs
    knows (s3://, gs://, file://). In a glob `*` and `[…]` stay within a name, `**` goes down any number of
    folders, and `?` is one character, but in a URI it begins the query. Folders and globs leave out names
    that begin with a dot (unless the glob says so), sockets and devices. What they find of another type has
    format `unsupported`, so that `read_source` accounts for it; a file that is named, by itself or by a glob
    ending in its extension, is read as text where its extension is not known.

    Args:
        inputs: paths, globs and URIs; a path that exists is no glob.

    Raises:
        InputError: there is no input; one does not exist, cannot be reached or listed; a glob matches
            nothing; a folder holds no file of a supported type.
    """
    if not inputs:
        raise InputError("no input: name at least one file, folder, glob or URI")
    found: dict[str, SourceFile] = {}
    for name in inputs:
        is_remote = is_uri(name) and urlsplit(name).scheme.lower() != "file"
        files = _find_remote(name) if is_remote else _find_local(_local_path(name))
        for file in files:
            found.setdefault(file.uri, file)
    return [found[uri] for uri in sorted(found)]


def _local_path(name: str) -> str:
    return unquote(urlsplit(name).path) if is_uri(name) else os.path.expanduser(name)


def _find_local(path: str) -> list[SourceFile]:
    if os.path.isdir(path):
        walked = (os.path.join(path, below) for below in _walk(path, hidden=False))
        return _of_folder(path, [_local_file(each, named=False) for each in walked])
    if os.path.exists(path):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{path} is no file that can be read: name files, folders or globs")
        return [_local_file(path, named=True)]
    magic = _MAGIC.search(path)
    if magic is None:
        raise InputError(f"{path} does not exist: check the path, or quote a glob")
    base = path[: path.rfind("/", 0, magic.start()) + 1]
    pattern = path[len(base) :]
    matches = re.compile(_glob_to_regex(pattern)).fullmatch
    below = [each for each in _walk(base or ".", hidden=_asks_for_hidden(pattern)) if matches(each)]
    if not below:
        raise InputError(f"{path} matches no file: check the pattern; `**` goes down folders")
    return [_local_file(base + each, named=_is_named(pattern, each)) for each in below]


def _walk(folder: str, *, hidden: bool) -> Iterator[str]:
    """Yield the regular files below a folder, relative to it; a folder linked to twice is walked once."""
    visited = {os.path.realpath(folder)}
    for where, folders, names in os.walk(folder, followlinks=True):
        kept = []
        for name in sorted(folders):
            real = os.path.realpath(os.path.join(where, name))
            if (hidden or not name.startswith(".")) and real not in visited:
                visited.add(real)
                kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            path = os.path.join(where, name)
            if (hidden or not name.startswith(".")) and (os.path.islink(path) or os.path.isfile(path)):
                yield os.path.relpath(path, folder)


def _local_file(path: str, *, named: bool) -> SourceFile:
    uri = Path(os.path.abspath(path)).as_uri()
    size, modified = 0, ""
    with suppress(FileNotFoundError):  # a link to nothing: reading will say so
        found = os.stat(path)
        size, modified = found.st_size, str(found.st_mtime_ns)
    return _source(uri, os.path.normpath(path), size, modified, named=named)


def _source(uri: str, display: str, size_bytes: int, modified: str, *, named: bool) -> SourceFile:
    _, extension, compression = split_name(uri)
    unknown = "txt" if named else "unsupported"
    return SourceFile(uri, display, size_bytes, FORMATS.get(extension, unknown), compression, modified)


def _of_folder(folder: str, files: list[SourceFile]) -> list[SourceFile]:
    if all(file.format == "unsupported" for file in files):
        kinds = sorted({split_name(file.uri)[1] for file in files})
        there = f"nothing but {', '.join(kinds)}" if kinds else "no file"
        raise InputError(f"{folder} holds {there}; what can be read is {_SUPPORTED}")
    return files


def _find_remote(name: str) -> list[SourceFile]:
    """List an object store. A file's URI is the input's, the rest of the path put in before the query."""
    shown = public_uri(name)
    base, mark, query = name.partition("?")
    magic = _REMOTE_MAGIC.search(base)
    root = (base if magic is None else base[: base.rfind("/", 0, magic.start())]).rstrip("/")
    root = quote(root, safe="/:@%+,;=&$!'()~")
    try:
        filesystem, path = fs.FileSystem.from_uri(root + mark + query)
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.File and magic is None:
            return [_source(root + mark + query, public_uri(root), info.size, _modified(info), named=True)]
        below = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{shown} cannot be reached: {explain(error)}") from error
    if info.type == fs.FileType.NotFound and not below:
        raise InputError(f"{shown} does not exist: check the bucket and the path")
    pattern = "" if magic is None else base[base.rfind("/", 0, magic.start()) + 1 :]
    matches = re.compile(_glob_to_regex(pattern or "**")).fullmatch
    hidden = _asks_for_hidden(pattern)
    files = []
    for each in below:
        rest = each.path[len(path) :].lstrip("/")
        visible = hidden or not any(part.startswith(".") for part in rest.split("/"))
        if each.type == fs.FileType.File and visible and matches(rest):
            uri = f"{root}/{quote(rest)}{mark}{query}"
            files.append(_source(uri, public_uri(uri), each.size, _modified(each), named=_is_named(pattern, rest)))
    if magic is None:
        return _of_folder(shown, files)
    if not files:
        raise InputError(f"{shown} matches no file: check the pattern; `**` goes down folders")
    return files


def _modified(info: fs.FileInfo) -> str:
    return str(info.mtime_ns or "")


def _is_named(pattern: str, path: str) -> bool:
    """Check that a glob ends in the extension of the file it found."""
    extension = os.path.splitext(path)[1]
    return bool(extension) and pattern.endswith(extension)


def _asks_for_hidden(pattern: str) -> bool:
    return any(part.startswith(".") and part not in (".", "..") for part in pattern.split("/"))


def _glob_to_regex(pattern: str) -> str:
    """Return a regular expression for relative paths.

    >>> re.fullmatch(_glob_to_regex("**/*.txt"), "a/b/c.txt") is not None
    True
    """
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\])", pattern)
    known = {"**/": r"(?:[^/]+/)*", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    regex = ""
    for piece in pieces:
        if len(piece) > 2 and piece[0] == "[" and piece[-1] == "]":
            inside = piece[1:-1].replace("\\", r"\\")
            regex += "[" + ("^" + inside[1:] if inside[0] == "!" else inside) + "]"
        else:
            regex += known.get(piece, re.escape(piece))
    return regex
