"""INPUT arguments → the files to read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from hirag_dist.config.object_stores import obstore_errors, open_s3, store_uri
from hirag_dist.errors import InputError
from hirag_dist.readers.local_files import (
    LOCK_MARK,
    LocalRoot,
    find_local,
    glob_to_regex,
    is_named,
    local_roots,
    matches_hidden,
    own_output,
)
from hirag_dist.readers.model import SourceFile
from hirag_dist.readers.open import FORMATS, explain, is_uri, public_uri, split_name

_REMOTE_MAGIC = re.compile(r"[*\[]")
_SUPPORTED = (
    ".txt .md .html .pdf .jsonl .json .parquet .csv .tsv .docx .pptx .xlsx .epub .eml, also as .gz .bz2 .xz .zst .lz4"
)


def find_inputs(inputs: Sequence[str], *, follow_links: bool = False) -> list[SourceFile]:
    """Return the files that INPUT arguments name, each once, sorted by URI.

    An input is a file, a folder (with all that is below it), a glob, or a URI of either kind that pyarrow.fs
    knows (s3://, gs://, file://). In a glob `*` and `[…]` stay within a name, `**` goes down any number of
    folders, and `?` is one character, but in a URI it begins the query. Folders and globs leave out names
    that begin with a dot (unless the glob says so), lock files of office programs, sockets and devices, and what this
    package wrote (`own_output`). What they find of another type has format `unsupported`, so that `read_source`
    accounts for it; a file that is named, by itself or by a glob ending in its extension, is read as text where its
    extension is not known. A file that must not or cannot be read (a link out of INPUT, a ring of links, a name that is
    not UTF-8) has a `refusal`.

    Args:
        inputs: paths, globs and URIs; a path that exists is no glob. A path may itself be a link.
        follow_links: also follow links that folders and globs find and that lead out of all local folders of the
            inputs.

    Raises:
        InputError: there is no input; one does not exist, cannot be reached or listed; a glob matches
            nothing; a folder holds no file of a supported type.
    """
    if not inputs:
        raise InputError("no input: name at least one file, folder, glob or URI")
    local = {name: _local_path(name) for name in inputs if _is_local(name)}
    roots = None if follow_links else local_roots(local.values())
    found: dict[str, SourceFile] = {}
    for name in inputs:
        for file in _local(local[name], roots) if name in local else _find_remote(name):
            found.setdefault(file.uri, file)
    return [found[uri] for uri in sorted(found)]


def _is_local(name: str) -> bool:
    return not is_uri(name) or urlsplit(name).scheme.lower() == "file"


def _local_path(name: str) -> str:
    return unquote(urlsplit(name).path, errors="surrogateescape") if is_uri(name) else os.path.expanduser(name)


def _local(path: str, roots: Sequence[LocalRoot] | None) -> list[SourceFile]:
    files = find_local(path, roots)
    return _of_folder(path, files) if os.path.isdir(path) else files


def _of_folder(folder: str, files: list[SourceFile]) -> list[SourceFile]:
    if all(file.format == "unsupported" and not file.refusal for file in files):
        kinds = sorted({split_name(file.uri)[1] for file in files})
        there = f"nothing but {', '.join(kinds)}" if kinds else "no file"
        raise InputError(f"{folder} holds {there}; what can be read is {_SUPPORTED}")
    return files


def _source(uri: str, display: str, info: fs.FileInfo, etag: str, *, named: bool) -> SourceFile:
    _, extension, compression = split_name(uri)
    unknown = "txt" if named else "unsupported"
    form, modified = FORMATS.get(extension, unknown), str(info.mtime_ns or "")
    return SourceFile(uri, display, info.size, form, compression, modified, display, etag=etag)


def _find_remote(name: str) -> list[SourceFile]:
    """List an object store. A file's URI is the input's, the rest of the path put in before the query."""
    shown = public_uri(name)
    base, mark, query = name.partition("?")
    magic = _REMOTE_MAGIC.search(base)
    root = (base if magic is None else base[: base.rfind("/", 0, magic.start())]).rstrip("/")
    root = quote(root, safe="/:@%+,;=&$!'()~")
    try:
        filesystem, path = fs.FileSystem.from_uri(store_uri(root + mark + query))
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.File and magic is None:
            etag = _etags(filesystem, path.rpartition("/")[0], path.rpartition("/")[2]).get(info.base_name, "")
            return [_source(root + mark + query, public_uri(root), info, etag, named=True)]
        etags = _etags(filesystem, path)  # first: of an object that is written meanwhile the next listing gives another
        below = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{shown} cannot be reached: {explain(error)}") from error
    if info.type == fs.FileType.NotFound and not below:
        raise InputError(f"{shown} does not exist: check the bucket and the path")
    pattern = "" if magic is None else base[base.rfind("/", 0, magic.start()) + 1 :]
    matches = re.compile(glob_to_regex(pattern or "**")).fullmatch
    hidden = matches_hidden(pattern)
    files = []
    own = _own_paths(each.path[len(path) :].lstrip("/") for each in below if each.type == fs.FileType.File)
    for each in below:
        rest = each.path[len(path) :].lstrip("/")
        visible = hidden or not any(part.startswith(".") for part in rest.split("/"))
        visible = visible and not rest.rpartition("/")[2].startswith(LOCK_MARK) and own.isdisjoint(_prefixes(rest))
        if each.type == fs.FileType.File and visible and matches(rest):
            uri = f"{root}/{quote(rest)}{mark}{query}"
            etag = etags.get(rest, "")
            files.append(_source(uri, public_uri(uri), each, etag, named=is_named(pattern, rest)))
    if magic is None:
        return _of_folder(shown, files)
    if not files:
        raise InputError(f"{shown} matches no file: check the pattern; `**` goes down folders")
    return files


def _own_paths(files: Iterable[str]) -> set[str]:
    """Return the paths of a listing that hold output of this package (`own_output`).

    Args:
        files: paths below INPUT.
    """
    held: dict[str, tuple[set[str], set[str]]] = {}  # folder → names of its folders and files
    for file in files:
        for path in _prefixes(file):
            folder, _, name = path.rpartition("/")
            held.setdefault(folder, (set(), set()))[path == file].add(name)
    own = ((folder, own_output(*names, is_input=not folder)) for folder, names in held.items())
    return {f"{folder}/{name}".lstrip("/") for folder, found in own for name in found}


def _prefixes(path: str) -> list[str]:
    """Return a path and the folders above it.

    >>> _prefixes("a/b/c.txt")
    ['a', 'a/b', 'a/b/c.txt']
    """
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _etags(filesystem: fs.FileSystem, path: str, name: str = "") -> dict[str, str]:
    """Return the ETags of the objects of an S3 folder by their paths below it, which pyarrow does not tell; else none.

    Args:
        name: Name of one object in the folder; empty for all.

    Raises:
        OSError: the store cannot be reached.
    """
    if not isinstance(filesystem, fs.S3FileSystem):
        return {}
    import obstore

    store = open_s3(filesystem, path)
    with obstore_errors():
        if name:
            return {name: obstore.head(store, name)["e_tag"] or ""}
        return {each["path"]: each["e_tag"] or "" for batch in obstore.list(store) for each in batch}
