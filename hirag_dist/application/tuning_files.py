"""A proposal for a domain as files to edit: a fragment of hirag.yaml, and examples for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from hirag_dist.application.tuning import TuningProposal, TuningSample
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, StoreError

CONFIG = "hirag.yaml"
PROMPTS = "prompts"


def check_target(out: str, *, force: bool) -> None:
    """Refuse a folder whose files would be overwritten.

    Raises:
        ConfigError: there are files that may have been edited.
    """
    found = [path for path in (Path(out) / CONFIG, Path(out) / PROMPTS) if path.exists()]
    if found and not force:
        raise ConfigError(f"{found[0]} exists, and may have been edited; --force overwrites it")


def write_files(sample: TuningSample, proposal: TuningProposal, out: str) -> list[Path]:
    """Write the files of a proposal and return their paths.

    Raises:
        StoreError: they cannot be written.
    """
    folder = Path(out)
    texts: dict[Path, str] = {}
    if proposal.examples:
        texts[folder / PROMPTS / f"{proposal.task}.examples.md"] = "\n\n".join(proposal.examples) + "\n"
    texts[folder / CONFIG] = configuration_text(sample, proposal, out)
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write into {out}: {error.strerror}") from error
    return list(texts)


def configuration_text(sample: TuningSample, proposal: TuningProposal, out: str) -> str:
    """Return the fragment of hirag.yaml, with comments."""
    read = f"{count_noun(len(sample.excerpts), 'excerpt')} of {count_noun(sample.documents, 'document')}"
    by = ", ".join(proposal.models)
    if proposal.by_llm:
        made = [f"Proposed by {by} from {read}. Read it, edit it, and copy it into your hirag.yaml."]
    else:
        made = [
            f"Proposed by the BUILT-IN model ({by}) from {read}, not by a language model: it knows",
            "seven types, which it finds by rules, and gives no examples. Name an endpoint for extract and summarise,",
            "and run `hirag-dist init --from INPUT` again, for types of your domain.",
        ]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in sample.languages)
    made.append(f"Language of the excerpts, by script and common words: {shown}. Names and descriptions stay in it.")
    made += [f"No reply could be used for {what} ({why}): this is the default." for what, why in proposal.rejected]
    parts = ["\n".join(f"# {line}" for line in made), _list("entity_types", proposal.entity_types)]
    parts.append(_list("meta_types", proposal.meta_types))
    if proposal.examples:
        examples = count_noun(len(proposal.examples), "example")
        prompts = yaml.safe_dump({"prompts": str(Path(out) / PROMPTS)}, allow_unicode=True).strip()
        parts.append(f"# {proposal.task}.examples.md in this folder has {examples} of your own sentences.\n{prompts}")
    return "\n\n".join(parts) + "\n"


def _list(key: str, values: Sequence[str]) -> str:
    return yaml.safe_dump({key: list(values)}, allow_unicode=True, sort_keys=False).strip()
