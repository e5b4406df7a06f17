"""Check the prose and the names of the project against the vocabulary in tools/prose-words.toml.

Text of Markdown pages, docstrings, comments, error messages, log messages and help texts is searched for refused words;
code spans, quoted text and doctests are not. Names of classes, constants and loggers, and the length of files and
functions, are checked in Python files.

Usage:
    python tools/prose.py                      every file, one line a finding
    python tools/prose.py hirag_dist/llm       one folder or file
    python tools/prose.py --count              the number of findings in each package
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RULES = tomllib.loads((ROOT / "tools" / "prose-words.toml").read_text(encoding="utf-8"))
WORDS: dict[str, str] = RULES["words"]
WORD = re.compile(r"\b(?:" + "|".join(word.replace(" ", r"[\s#*/]+") for word in WORDS) + r")\b", re.IGNORECASE)
NOT_PROSE = re.compile(  # code spans, quoted text, link targets, addresses, doctests
    r"``[^`]*``|`[^`\n]*`|\"[^\"\n]*\"|“[^”]*”|(?<=\])\([^)\s]*\)|https?://\S+|^[ \t]*>>> .*(?:\n[ \t]*\S.*)*",
    re.MULTILINE,
)
FENCED_CODE = re.compile(r"^([ \t]*)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)
OPENING = re.compile(rf"\s*({'|'.join(RULES['openings']['refused'])})\b", re.IGNORECASE)
LINE_COMMENT = {
    **dict.fromkeys((".yaml", ".yml", ".sh", ".toml", "Makefile", "Dockerfile"), re.compile(r"(?:^|\s)#(.*)")),
    **dict.fromkeys((".proto", ".ts", ".js"), re.compile(r"(?:^|\s)//(.*)")),
    ".tpl": re.compile(r"\{\{-?\s*/\*(.*)"),
}
MESSAGE_KEYWORDS = {"help", "short_help", "epilog", "description"}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
MAX_FILE, MAX_FUNCTION = 400, 80  # lines
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def refused_words(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield the line offset and a message for each refused word of a text.

    >>> list(refused_words("Nobody waits.\nIt is built\nanew for `desk`."))[1]
    (2, 'anew; write: again, or: rebuild, rewrite, regenerate')
    """
    prose = NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for match in WORD.finditer(prose):
        word = re.sub(r"[\s#*/]+", " ", match.group()).lower()
        yield prose.count("\n", 0, match.start()), f"{word}; write: {WORDS[word]}"


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each comment; comments on consecutive lines are one text."""
    block: list[str] = []
    start = last = column = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, at = token.start
        if block and (line != last + 1 or at != column):
            yield start, "\n".join(block)
            block = []
        if not block:
            start, column = line, at
        block.append(token.string.lstrip("#"))
        last = line
    if block:
        yield start, "\n".join(block)


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of string literals in raised errors, log calls and help texts."""
    for node in ast.walk(tree):
        holders: list[ast.AST] = []
        if isinstance(node, ast.Raise) and node.exc:
            holders.append(node.exc)
        elif isinstance(node, ast.Call):
            holders += [keyword.value for keyword in node.keywords if keyword.arg in MESSAGE_KEYWORDS]
            if isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
                holders += node.args
        for holder in holders:
            for part in ast.walk(holder):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def name_faults(node: ast.AST) -> Iterator[str]:
    """Yield the faults of the name that a statement defines."""
    if isinstance(node, ast.ClassDef):
        for word in set(re.findall(r"[A-Z][a-z]+", node.name)) & set(RULES["class_names"]["refused"]):
            yield f"class {node.name}: {word} is a metaphor"
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        for prefix, instead in RULES["constants"].items():
            if node.id.lstrip("_").startswith(prefix):
                yield f"constant {node.id}: write {instead}"
    elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("logging.getLogger(", "getLogger(")):
        for target in node.targets:
            if ast.unparse(target) != "logger":
                yield f"logger {ast.unparse(target)}: write logger"


def python_findings(path: str, source: str) -> Iterator[Finding]:
    tree = ast.parse(source)
    texts = [*comments(source), *messages(tree)]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and (docstring := ast.get_docstring(node, clean=False)):
            line = node.body[0].lineno
            texts.append((line, docstring))
            if opening := OPENING.match(docstring):
                yield Finding(path, line, "opening", f'the docstring begins with "{opening.group(1)}"')
        for fault in name_faults(node):
            yield Finding(path, getattr(node, "lineno", 1), "name", fault)
        if isinstance(node, DEFINITIONS[1:]) and (n_lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION:
            yield Finding(path, node.lineno, "size", f"function {node.name} has {n_lines} lines, over {MAX_FUNCTION}")
    if (n_lines := source.count("\n")) > MAX_FILE and not path.startswith("tests/"):
        yield Finding(path, 1, "size", f"the file has {n_lines} lines, over {MAX_FILE}")
    for line, text in texts:
        for offset, message in refused_words(text):
            yield Finding(path, line + offset, "word", message)


def text_findings(path: str, source: str) -> Iterator[Finding]:
    """Yield the findings of a file that is not Python: all text of Markdown, the comments of others."""
    if path.endswith(".md"):
        prose = FENCED_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)
    elif pattern := LINE_COMMENT.get(Path(path).suffix or Path(path).name):
        prose = "\n".join(match.group(1) if (match := pattern.search(line)) else "" for line in source.split("\n"))
    else:
        return
    for offset, message in refused_words(prose):
        yield Finding(path, 1 + offset, "word", message)


def doubles(paths: list[str]) -> Iterator[Finding]:
    """Yield every public class of the package whose name another module defines too.

    Modules of `integrations` are exempt among themselves: each is for another framework, with the same names.
    """
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in paths:
        if path.startswith("hirag_dist/") and path.endswith(".py"):
            for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append((path, node.lineno))
    for name, where in places.items():
        for path, line in where if len(where) > 1 else ():
            others = ", ".join(other for other, _ in where if other != path)
            if not all(other.startswith("hirag_dist/integrations/") for other, _ in where):
                yield Finding(path, line, "double", f"class {name} is also defined in {others}")


def files(paths: list[str]) -> list[str]:
    """Return the checked files of the working tree under `paths`, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    excluded = tuple(RULES["paths"]["excluded"])
    return sorted({path for path in listed if not path.startswith(excluded) and (ROOT / path).is_file()})


def findings(paths: list[str]) -> list[Finding]:
    """Return all findings in the files under `paths`, sorted by file and line."""
    chosen = files(paths)
    result = [finding for finding in doubles(files(["hirag_dist"])) if finding.path in set(chosen)]
    for path in chosen:
        if path.endswith(".py"):
            result += python_findings(path, (ROOT / path).read_text(encoding="utf-8"))
        elif path.endswith(".md") or (Path(path).suffix or Path(path).name) in LINE_COMMENT:
            result += text_findings(path, (ROOT / path).read_text(encoding="utf-8"))
    return sorted(set(result))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check prose and names; see CONTRIBUTING.md.")
    parser.add_argument("paths", nargs="*", help="files or folders; by default the whole project")
    parser.add_argument("--package", action="append", default=[], help="the same as a path")
    parser.add_argument("--count", action="store_true", help="print the number of findings in each package")
    arguments = parser.parse_args()
    given = [str(Path(path).resolve().relative_to(ROOT)) for path in arguments.paths + arguments.package]
    result = findings(given or RULES["paths"]["default"])
    if arguments.count:
        packages = Counter(("/".join(Path(row.path).parts[:2]), row.rule) for row in result)
        for (package, rule), n in sorted(packages.items()):
            print(f"{n:6d}  {rule:8s} {package}")
    else:
        print("\n".join(map(str, result)) or "prose: no finding")
    if result:
        print(f"prose: {len(result)} findings", file=sys.stderr)
    return int(bool(result))


if __name__ == "__main__":
    sys.exit(main())
