"""Prompt replacements from a folder."""

from __future__ import annotations

from pathlib import Path

from hirag_dist.core.prompts.templates import INSTRUCTIONS, Prompts
from hirag_dist.errors import ConfigError


def load_prompts(folder: str | None) -> Prompts:
    """Return the prompts, with the replacements of a folder: NAME.md, and NAME.examples.md.

    Raises:
        ConfigError: no such folder, a file that names no prompt, an empty file, or a prompt without its placeholders.
    """
    if folder is None:
        return Prompts()
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"prompts: no folder {folder}")
    instructions: dict[str, str] = {}
    examples: dict[str, str] = {}
    for file in sorted(root.glob("*.md")):
        name = file.name.removesuffix(".md")
        kind = examples if name.endswith(".examples") else instructions
        name = name.removesuffix(".examples")
        if name not in INSTRUCTIONS:
            raise ConfigError(f"{file}: no prompt is called {name!r}; there are: {', '.join(INSTRUCTIONS)}")
        try:
            kind[name] = file.read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from None
        if not instructions.get(name, "-"):
            raise ConfigError(f"{file} is empty: write the text, or remove the file for the built-in one")
    return Prompts(instructions, examples)
