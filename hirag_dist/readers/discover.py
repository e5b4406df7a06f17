"""INPUT arguments → the files to read, with the links among them judged.

A link that a folder or a glob finds is followed where it leads to something below one of the local folders of INPUT.
A link that leads out of them is refused: a user with write access to an input folder could otherwise have any file of
the machine indexed. A file is named by its path below INPUT, whatever a link leads to, so that names are those of the
folder that is seen and outlive an exchange of what is behind the links (a ConfigMap of Kubernetes).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from hirag_dist.config.object_stores import obstore_errors, open_s3, store_uri
from hirag_dist.errors import InputError
from hirag_dist.readers.model import SourceFile
from hirag_dist.readers.open import FORMATS, explain, is_uri, is_utf8, public_uri, split_name

_MAGIC = re.compile(r"[*?\[]")
LOCK_MARK = "~$"
"""Beginning of the name of a lock file, which office programs write beside an open document."""

_INDEX_NAMES = frozenset((
    "current", "snapshots", "reports", "work", "ledger", "build.json", "builds", "forget.json", "purged.json",
    "drops.json", "snapshot_history.json", "run.lock", "milvus", "cache",
))  # fmt: skip

_LEADS_OUT = "a link that leads out of INPUT; name its target as an INPUT, or set reading.follow_links"
_NOT_UTF8 = "the name of the file is not UTF-8; rename the file"


@dataclass(frozen=True, slots=True)
class LocalRoot:
    """A folder of INPUT.

    Attributes:
        path: with all links resolved.
        hidden: whether what is found below it includes names that begin with a dot.
    """

    path: str
    hidden: bool

    def holds(self, real: str) -> bool:
        """Check that a resolved path is the folder or below it."""
        return real == self.path or real.startswith(self.path.rstrip("/") + "/")

    def lists(self, real: str) -> bool:
        """Check that a walk from the folder comes to a resolved path without following links."""
        below = os.path.relpath(real, self.path).split("/")
        return self.holds(real) and (self.hidden or not any(part.startswith(".") for part in below if part != "."))


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something below a folder: its path relative to it, and why it is not read."""

    path: str
    refusal: str = ""
    is_folder: bool = False


def local_roots(paths: Iterable[str]) -> list[LocalRoot]:
    """Return the folders that paths and globs find files in; none for a path of a file."""
    return [_root_of(path) for path in paths if os.path.isdir(path) or not os.path.exists(path)]


def _root_of(path: str) -> LocalRoot:
    """Return the folder that a path of a folder, or a glob, finds files in."""
    base, pattern = (path, "") if os.path.isdir(path) else _split_glob(path)
    return LocalRoot(os.path.realpath(base or "."), matches_hidden(pattern))


def find_local(path: str, roots: Sequence[LocalRoot] | None) -> list[SourceFile]:
    """Return the files of a path or glob.

    Args:
        roots: folders that links may lead to; None for any.

    Raises:
        InputError: it does not exist, cannot be listed, or is no file; a glob matches nothing; a folder holds no file
            of a supported type.
    """
    if os.path.isdir(path):
        files = [_file(path, entry, named=False) for entry in _walk(path, _root_of(path), roots)]
        names = set(os.listdir(path))
        folders = {name for name in names if os.path.isdir(os.path.join(path, name))}
        return _of_folder(path, files, is_index=bool(own_output(folders, names - folders, is_input=True)))
    if os.path.exists(path):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{_shown(path)} is no file that can be read: name files, folders or globs")
        return [_file(os.path.dirname(path), _Entry(os.path.basename(path)), named=True)]
    base, pattern = _split_glob(path)
    if not pattern:
        raise _absent(path)
    matches = re.compile(glob_to_regex(pattern)).fullmatch
    files = [
        _file(base, entry, named=is_named(pattern, entry.path))
        for entry in _walk(base or ".", _root_of(path), roots)
        if matches(entry.path) or (entry.is_folder and may_match_below(pattern, entry.path))
    ]
    if not files:
        raise InputError(f"{_shown(path)} matches no file: check the pattern; `**` goes down folders")
    return files


def _absent(path: str) -> InputError:
    if not path:  # a variable of the shell that is not set gives that
        return InputError("an INPUT is an empty text: name a file, folder, glob or URI")
    return InputError(f"{_shown(path)} does not exist: check the path, or quote a glob")


def _split_glob(path: str) -> tuple[str, str]:
    """Return the folder before the first wildcard, and the rest; the rest is empty where there is no wildcard."""
    magic = _MAGIC.search(path)
    if magic is None:
        return path, ""
    end = path.rfind("/", 0, magic.start()) + 1
    return path[:end], path[end:]


def _walk(folder: str, root: LocalRoot, roots: Sequence[LocalRoot] | None) -> Iterator[_Entry]:
    """Yield the regular files below a folder, and what of it is refused; nothing that `own_output` names.

    A link to a folder that the walk comes to under its own name is left out; a folder that is only linked to is walked
    once.

    Raises:
        InputError: the folder itself cannot be listed.
    """
    visited = {root.path}
    unlisted: list[OSError] = []
    for where, folders, names in os.walk(folder, onerror=unlisted.append, followlinks=True):
        own = own_output({*folders}, {*names}, is_input=where == folder)
        kept = []
        for name in sorted(folders):
            path = os.path.join(where, name)
            if (name.startswith(".") and not root.hidden) or name in own:
                continue
            if not os.path.islink(path):
                kept.append(name)
                continue
            real = os.path.realpath(path)
            if real in visited or root.lists(real):
                continue
            if roots is not None and not any(each.holds(real) for each in roots):
                yield _Entry(os.path.relpath(path, folder), _LEADS_OUT, is_folder=True)
                continue
            visited.add(real)
            kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            path = os.path.join(where, name)
            if (name.startswith(".") and not root.hidden) or name.startswith(LOCK_MARK) or name in own:
                continue
            if os.path.islink(path):
                yield _Entry(os.path.relpath(path, folder), _link_refusal(path, roots))
            elif os.path.isfile(path):
                yield _Entry(os.path.relpath(path, folder))
    for error in unlisted:
        below = os.path.relpath(str(error.filename), folder)
        if below == ".":
            raise InputError(f"{_shown(folder)} cannot be listed: {error.strerror}")
        yield _Entry(below, f"the folder cannot be listed: {error.strerror}", is_folder=True)


def _link_refusal(path: str, roots: Sequence[LocalRoot] | None) -> str:
    """Return why a link to something that is no folder is not read; empty for none."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link that leads back to itself"
        mode = None  # a link to nothing or to what is forbidden: reading says so
    real = os.path.realpath(path)
    if roots is not None and not any(root.holds(real) for root in roots):
        return _LEADS_OUT
    return "" if mode is None or stat.S_ISREG(mode) else "a link to something that is no regular file"


def _file(folder: str, entry: _Entry, *, named: bool) -> SourceFile:
    path = os.path.join(folder, entry.path)
    uri = Path(os.path.abspath(path)).as_uri()
    size, modified = 0, ""
    if not entry.refusal:
        try:
            found = os.stat(path)
            size, modified = found.st_size, str(found.st_mtime_ns)
        except OSError:  # a link to nothing, or a file that is gone or forbidden: reading says so
            pass
    _, extension, compression = split_name(uri)
    form = FORMATS.get(extension, "txt" if named else "unsupported")
    refusal = entry.refusal or ("" if is_utf8(os.path.abspath(path)) else _NOT_UTF8)
    display, name = _shown(os.path.normpath(path)), _shown(entry.path)
    return SourceFile(uri, display, size, form, compression, modified, name, refusal)


def _shown(path: str) -> str:
    r"""Return a path with the bytes that are not UTF-8 as escapes, `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def own_output(folders: Set[str], files: Set[str], *, is_input: bool) -> Set[str]:
    """Return which names in a folder belong to an index, which would otherwise index itself below its own INPUT.

    Args:
        folders, files: the names that the folder holds.
        is_input: whether the folder is INPUT itself, which may have documents beside the files of an index.
    """
    own: set[str] = set()
    is_begun = "build.json" in files and ("run.lock" in files or not folders.isdisjoint(("ledger", "work")))
    if is_begun or ("current" in files and "snapshots" in folders):
        own |= (folders | files) & _INDEX_NAMES if is_input else folders | files
    return own


def is_named(pattern: str, path: str) -> bool:
    """Check that a glob ends in the extension of the file it found."""
    extension = os.path.splitext(path)[1]
    return bool(extension) and pattern.endswith(extension)


def matches_hidden(pattern: str) -> bool:
    """Check whether a glob names files or folders that begin with a dot."""
    return any(part.startswith(".") and part not in (".", "..") for part in pattern.split("/"))


def may_match_below(pattern: str, folder: str) -> bool:
    """Check whether a glob may match a path below a folder.

    >>> may_match_below("docs/*/*.txt", "docs/a"), may_match_below("*.txt", "docs")
    (True, False)
    """
    parts = pattern.split("/")
    names = folder.split("/")
    for part, name in zip(parts, names, strict=False):
        if "**" in part:
            return True
        if re.fullmatch(glob_to_regex(part), name) is None:
            return False
    return len(names) < len(parts)


def glob_to_regex(pattern: str) -> str:
    """Return a regular expression for relative paths.

    >>> re.fullmatch(glob_to_regex("**/*.txt"), "a/b/c.txt") is not None
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
        for file in find_local(local[name], roots) if name in local else _find_remote(name):
            found.setdefault(file.uri, file)
    return [found[uri] for uri in sorted(found)]


def check_inputs(inputs: Sequence[str]) -> None:
    """Refuse INPUT arguments that do not exist. Nothing below a folder is listed, so that this costs next to nothing.

    Args:
        inputs: as `find_inputs`; of a glob, the folder before the first wildcard has to exist.

    Raises:
        InputError: one does not exist, or cannot be reached.
    """
    for name in inputs:
        if not _is_local(name):
            _find_remote(name, is_listed=False)
        elif not os.path.exists(path := _local_path(name)):
            base, pattern = _split_glob(path)
            if not pattern or not os.path.exists(base or "."):
                raise _absent(path)


def _is_local(name: str) -> bool:
    return not is_uri(name) or urlsplit(name).scheme.lower() == "file"


def _local_path(name: str) -> str:
    return unquote(urlsplit(name).path, errors="surrogateescape") if is_uri(name) else os.path.expanduser(name)


def _of_folder(folder: str, files: list[SourceFile], *, is_index: bool) -> list[SourceFile]:
    if all(file.format == "unsupported" and not file.refusal for file in files):
        kinds = sorted({split_name(file.uri)[1] for file in files})
        if is_index and not kinds:
            why = f"{folder} is the folder of an index and holds no document"
            raise InputError(f"{why}: give documents as INPUT, and the index by --index")
        there = f"nothing but {', '.join(kinds)}" if kinds else "no file"
        raise InputError(f"{folder} holds {there}; what can be read is {_SUPPORTED}")
    return files


def _source(uri: str, display: str, info: fs.FileInfo, etag: str, *, named: bool) -> SourceFile:
    _, extension, compression = split_name(uri)
    unknown = "txt" if named else "unsupported"
    form, modified = FORMATS.get(extension, unknown), str(info.mtime_ns or "")
    return SourceFile(uri, display, info.size, form, compression, modified, display, etag=etag)


def _find_remote(name: str, *, is_listed: bool = True) -> list[SourceFile]:
    """List an object store. A file's URI is the input's, the rest of the path put in before the query.

    Args:
        is_listed: False only checks that the input exists, and returns nothing where it does.
    """
    shown = public_uri(name)
    base, mark, query = name.partition("?")
    magic = _REMOTE_MAGIC.search(base)
    root = (base if magic is None else base[: base.rfind("/", 0, magic.start())]).rstrip("/")
    root = quote(root, safe="/:@%+,;=&$!'()~")
    try:
        filesystem, path = fs.FileSystem.from_uri(store_uri(root + mark + query))
        info = filesystem.get_file_info(path)
        if not is_listed and info.type != fs.FileType.NotFound:
            return []
        if info.type == fs.FileType.File and magic is None:
            etag = _etags(filesystem, path.rpartition("/")[0], path.rpartition("/")[2]).get(info.base_name, "")
            return [_source(root + mark + query, public_uri(root), info, etag, named=True)]
        etags = _etags(filesystem, path)  # first: of an object that is written meanwhile the next listing gives another
        below = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{shown} cannot be reached: {explain(error)}") from error
    if info.type == fs.FileType.NotFound and not below:
        hint = "; a percent sign of a name is written %25 in a URI" if "%" in base else ""
        raise InputError(f"{shown} does not exist: check the bucket and the path{hint}")
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
        return _of_folder(shown, files, is_index=any("/" not in each for each in own))
    if not files:
        raise InputError(f"{shown} matches no file: check the pattern; `**` goes down folders")
    return files


def _own_paths(files: Iterable[str]) -> set[str]:
    """Return the paths of a listing that hold output of this package (`own_output`)."""
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
