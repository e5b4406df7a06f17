"""The configuration as people write it: where values come from, and what is said of their mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.config.loader import REMOVED, RENAMED, LoadedConfig, load_config
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError

SECRET = "sk-5ecret"
NO_EXTENSIONS_OF_ASCII = ("klingon", "utf-16", "rot13", "idna", "unicode_escape", "base64", "")


class Loader:
    """Writes a file and loads it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "hirag.yaml")

    def __call__(self, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> LoadedConfig:
        Path(self.path).write_text(text, encoding="utf-8")
        dotted = {name.replace("__", "."): value for name, value in overrides.items()}
        return load_config(self.path, environ or {}, dotted)

    def fault(self, text: str, environ: dict[str, str] | None = None, **overrides: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            self(text, environ, **overrides)
        assert caught.value.__cause__ is None, "a chained error would show the input in a traceback"
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
        return str(caught.value).replace(self.path, "FILE")


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    return Loader(tmp_path)


@pytest.mark.parametrize("text", [None, "", "# nothing but a comment\n", "\ufeff", "---\n"])
def test_no_file_and_an_empty_file_change_nothing(load: Loader, text: str | None) -> None:
    loaded = load_config(None, {"PATH": "/bin"}) if text is None else load(text)
    assert (loaded.config, loaded.origins) == (Config(), {})


def test_later_origins_win(load: Loader) -> None:
    text = "seed: 1\nchunk_tokens: 300\nclustering: {target_size: 5, member_chars: 90}\nprompts: mine\n"
    loaded = load(text, {"HIRAG__SEED": "2", "HIRAG__CLUSTERING__TARGET_SIZE": "6"}, seed=3, prompts=None)
    assert loaded.config.prompts is None
    assert (loaded.config.seed, loaded.config.chunk_tokens) == (3, 300)
    assert (loaded.config.clustering.target_size, loaded.config.clustering.member_chars) == (6, 90)
    assert loaded.origins == {
        "seed": "command line",
        "chunk_tokens": load.path,
        "clustering.target_size": "environment HIRAG__CLUSTERING__TARGET_SIZE",
        "clustering.member_chars": load.path,
        "prompts": "command line",
    }


def test_the_environment_gives_values_of_every_kind(load: Loader) -> None:
    config = load(
        "",
        {
            "HIRAG__RETRIEVAL__COMMUNITY_LEVEL": "2",
            "HIRAG__SERVICE__REFLECTION": "no",
            "HIRAG__META_TYPES": "[field, person]",
            "HIRAG__SERVICE__TLS_CERT": "null",
            "HIRAG__SERVICE__DRAIN_S": "2.5",
            "HIRAG__LLM__ENDPOINTS__GPT": "{base_url: 'http://x', model: '4'}",
            "HIRAG__LLM__ENDPOINTS__GPT__API_KEY": "@12345: #x",
            "HIRAGX": "[",
            "HIRAG": "[",
        },
    ).config
    assert config.retrieval.community_level == "2"
    assert config.meta_types == ("field", "person")
    assert (config.service.reflection, config.service.tls_cert, config.service.drain_s) == (False, None, 2.5)
    assert config.llm.endpoints["gpt"].api_key.get_secret_value() == "@12345: #x"


def test_variables_and_their_defaults_are_put_in(load: Loader) -> None:
    text = "seed: ${SEED}\nprompts: ${HOME}/a-${NAME:-b}\nentity_types: ['${A:-}x', '$$', '${not a name}']\n"
    config = load(text, {"SEED": "7", "HOME": "/home/me"}).config
    assert (config.seed, config.prompts) == (7, "/home/me/a-b")
    assert config.entity_types == ("x", "$$", "${not a name}")
    assert load(text, {"SEED": "7", "HOME": "h", "NAME": ""}).config.prompts == "h/a-", "set and empty is set"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chunk_token: 5", "unknown key chunk_token; did you mean chunk_tokens?"),
        ("clustering: {target_sise: 5}", "unknown key clustering.target_sise; did you mean target_size?"),
        (
            "llm: {endpoints: {gpt: {base_ur: x, kind: extractive}}}",
            "unknown key llm.endpoints.gpt.base_ur; did you mean base_url?",
        ),
        ("vectors: {zzz: 1}", "unknown key vectors.zzz; there are: backend, uri, token"),
        ("top_n: 4", "unknown key top_n; did you mean retrieval.top_n?"),
        ("endpoints: {}", "unknown key endpoints; did you mean llm.endpoints?"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(load: Loader, text: str, said: str) -> None:
    assert said in load.fault(text)


@pytest.mark.parametrize(
    ("environ", "overrides", "said"),
    [
        ({}, {"foo__bar": 1}, "command line: unknown key foo"),
        ({}, {"retrieval__top_n": "abc"}, "command line: retrieval.top_n: Input should be a valid integer"),
        ({}, {"retrieval": {"top_n": "abc"}}, "command line: retrieval.top_n: Input"),
        ({}, {"chunk_overlap_tokens": 9000}, "command line: Invalid chunk_overlap_tokens: must be below chunk_tokens"),
        ({}, {"llm__roles__embed": "x"}, "command line: llm: Invalid llm.roles.embed: 'x' is not defined"),
        ({"HIRAG__FOO__BAR": "1"}, {}, "environment HIRAG__FOO__BAR: unknown key foo"),
        ({"HIRAG__SEED": "x"}, {"seed": 1, "foo": 2}, "command line: unknown key foo"),
        ({"HIRAG__SEED": "x"}, {"foo": 2}, "environment HIRAG__SEED: seed: Input should be a valid integer"),
        (
            {"HIRAG__LLM__ENDPOINTS__GPT__MODEL": ""},
            {},
            "FILE, environment HIRAG__LLM__ENDPOINTS__GPT__MODEL: llm.endpoints.gpt: base_url and model are required",
        ),
    ],
)
def test_the_origin_of_a_mistake_is_named(
    load: Loader, environ: dict[str, str], overrides: dict[str, Any], said: str
) -> None:
    text = "chunk_tokens: 100\nchunk_overlap_tokens: 10\nllm: {endpoints: {gpt: {base_url: 'http://x', model: m}}}"
    assert said in load.fault(text, environ, **overrides)


def test_all_mistakes_are_said_at_once(load: Loader) -> None:
    said = load.fault("sede: 1\nchunk_tokens: many\nclustering: {threshold: 2}")
    assert said.startswith("FILE: ")
    assert "did you mean seed?" in said
    assert "chunk_tokens: Input should be a valid integer" in said
    assert "clustering.threshold: Input should be less than 1" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("chunk_tokens: 100\nchunk_overlap_tokens: 100", "Invalid chunk_overlap_tokens: must be below chunk_tokens"),
        (
            "llm: {endpoints: {gpt: {model: x}}}",
            "llm.endpoints.gpt: base_url and model are required for an endpoint of kind openai",
        ),
        (
            "llm: {endpoints: {gpt: {model: x, base_url: 'localhost:8080'}}}",
            "llm.endpoints.gpt: base_url 'localhost:8080' must look like https://host/v1",
        ),
        (
            "llm: {roles: {embed: builtin}}",
            "Invalid llm.roles.embed: 'builtin' is of kind extractive, which cannot do it",
        ),
        ("[1, 2]", "FILE must hold keys and values, not a list"),
        ("a: b: c", "FILE is not YAML: mapping values are not allowed here in line 1, column 5"),
        (
            "retrieval:\n  top_n: 5\nretrieval:\n  top_k: 3\n",
            "FILE is not YAML: the key retrieval is there twice, the second time in line 3, column 1",
        ),
        ("seed: &a [*a]", "FILE has an anchor that holds itself"),
        ("seed: ${SEED}", "FILE uses ${SEED}, and SEED is not set in the environment"),
        (
            "llm: {endpoints: {gpt: {model: x, base_url: 'http://h/v1', api_key: '${KEY}'}}}",
            "FILE uses ${KEY}, and KEY is empty in the environment",
        ),
        ("service: {access_log: json}", "access_log: Expected true or false, "),
        *((f"reading: {{encoding: '{name}'}}", f"{name}' (option --encoding)") for name in NO_EXTENSIONS_OF_ASCII),
    ],
)
def test_mistakes_are_said_in_one_line(load: Loader, text: str, said: str) -> None:
    fault = load.fault(text, {"KEY": ""})
    assert said in fault
    assert "\n" not in fault


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`hirag-dist init` writes one"):
        load_config(str(tmp_path / "no.yaml"), {})
    (tmp_path / "latin.yaml").write_bytes(b"prompts: \xe9")
    with pytest.raises(ConfigError, match=r"cannot read .*latin\.yaml"):
        load_config(str(tmp_path / "latin.yaml"), {})
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(str(tmp_path), {})


@pytest.mark.parametrize(
    "text",
    [
        "llm:\n  endpoints:\n    gpt:\n      api_key: KEY: x\n",
        "llm: {endpoints: {gpt: {api_key: [KEY]}}}",
        "llm: {endpoints: {gpt: {api_key: KEY, rpm: -1}}}",
        "llm: {endpoints: {gpt: {api_key: KEY, modle: x}}}",
        "llm: {endpoints: {gpt: {api_key: KEY",
        "vectors: {token: [KEY]}",
        "vectors: {token: '${TOKEN}', uri: ['${TOKEN}']}",
    ],
)
def test_secrets_never_show_in_errors(load: Loader, text: str) -> None:
    assert SECRET not in load.fault(text.replace("KEY", SECRET), {"TOKEN": SECRET})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": -1}, "greater than or equal to 0"),
        ({"meta_types": [""]}, "none empty"),
        ({"meta_types": "person"}, "Expected a list of types"),
        ({"communities": {"resolution": float("inf")}}, "less than or equal to"),
    ],
)
def test_values_that_would_fail_hours_later_are_refused_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config.model_validate(given)


def test_credentials_in_urls_are_masked_where_the_configuration_is_shown() -> None:
    config = Config.model_validate(
        {
            "llm": {"endpoints": {"main": {"base_url": "https://me:secret1@h/v1?api-key=secret2&x=", "model": "m"}}},
            "vectors": {"uri": "http://root:secret3@milvus:19530"},
            "execution": {"ray_address": "ray://me:secret4@h:10001"},
            "traces_endpoint": "http://me:secret5@h:4318/v1/traces",
        }
    )
    shown = config.model_dump_json()
    assert "secret" not in shown
    assert "https://***@h/v1?api-key=***&x=" in shown
    assert config.llm.endpoints["main"].base_url == "https://me:secret1@h/v1?api-key=secret2&x="


def test_fidelity_to_the_paper_takes_communities_of_all_levels_unless_a_level_is_given(load: Loader) -> None:
    assert load("retrieval: {top_n: 5}").config.retrieval.community_level == "leaf"
    assert load("retrieval: {fidelity: paper}").config.retrieval.community_level == "all"
    assert load("retrieval: {fidelity: paper, community_level: 0}").config.retrieval.community_level == "0"


def test_a_file_of_decisions_about_names_is_read_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "aliases.csv"
    file.write_text("name,other,same\nWHO, World Health Organization ,Yes\n")
    given = {"resolution": {"aliases": str(file)}}
    assert load_config(None, {}, given).config.resolution.aliases == (("WHO", "World Health Organization", True),)
    file.write_text("name,other,same\nWHO,UN,perhaps\n")
    with pytest.raises(ConfigError, match="line 2: expected values of name and other, and yes or no in same"):
        load_config(None, {}, given)
    file.write_text("name,other,same\nWHO,UN,yes\nun,WHO,no\n")
    with pytest.raises(ConfigError, match="line 3: an earlier line decides otherwise about un and WHO"):
        load_config(None, {}, given)
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(None, {}, {"resolution": {"aliases": str(tmp_path / "none.csv")}})


@pytest.mark.parametrize("name", ["windows-1251", "Shift_JIS", "koi8-r", "utf-8"])
def test_an_encoding_that_extends_ascii(name: str) -> None:
    assert load_config(None, {}, {"reading.encoding": name}).config.reading.encoding == name


def one(dotted: str) -> str:
    """Return a configuration that gives one key the value 1."""
    *sections, key = dotted.split(".")
    return "".join(f"{section}: {{" for section in sections) + f"{key}: 1" + "}" * len(sections)


@pytest.mark.parametrize(("former", "now"), sorted(RENAMED.items()))
def test_a_renamed_key_is_named(load: Loader, former: str, now: str) -> None:
    former, now = former.replace("*", "main"), now.replace("*", "main")
    assert f"unknown key {former}; it is called {now} now" in load.fault(one(former))
    assert f"unknown key {now}" not in load.fault(f"{one(now)}\nzzz: 1"), "there is such a key"


@pytest.mark.parametrize(("removed", "advice"), sorted(REMOVED.items()))
def test_a_removed_key_says_what_to_do(load: Loader, removed: str, advice: str) -> None:
    removed = removed.replace("*", "main")
    assert f"unknown key {removed}; there is no such key any more: {advice}" in load.fault(one(removed))
