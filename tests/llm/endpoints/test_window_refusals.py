"""Refusals of prompts that are larger than a model's window, in the words of the servers."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.llm.endpoints.openai_connection import refused_window

REFUSALS: list[tuple[str, int | None, int | None, int, dict[str, Any]]] = [  # server, window, prompt, status, detail
    ("OpenAI, prompt and reply", 8192, 9200, 400, {"message": "This model's maximum context length is 8192 tokens. "
     "However, you requested 10200 tokens (9200 in the messages, 1000 in the completion)."}),
    ("OpenAI, without numbers", None, None, 400, {"code": "context_length_exceeded", "message": "Your input exceeds "
     "the context window of this model. Please adjust your input and try again."}),
    ("vLLM", 4096, 1200, 400, {"message": "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's "
     "maximum context length is 4096 tokens and your request has 1200 input tokens (5000 > 4096 - 1200)."}),
    ("vLLM, prompt alone", 4096, 5012, 400, {"message": "The decoder prompt (length 5012) is longer than the maximum "
     "model length of 4096."}),
    ("llama.cpp", 4096, 5023, 400, {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 5023,
     "n_ctx": 4096, "message": "the request exceeds the available context size, try increasing it"}),
    ("llama.cpp, embeddings", 512, 730, 500, {"message": "input (730 tokens) is too large to process. increase the "
     "physical batch size (current batch size: 512)"}),
    ("Ollama", None, None, 400, {"message": "the input length exceeds the context length"}),
    ("Mistral", 32768, 40123, 400, {"message": "Prompt contains 40123 tokens and 0 draft tokens, too large for model "
     "with 32768 maximum context length"}),
    ("Anthropic, prompt and reply", 200_000, 190_000, 400, {"message": "input length and `max_tokens` exceed context "
     "limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again"}),
    ("Gemini", 1_048_576, 1_200_000, 400, {"message": "The input token count (1200000) exceeds the maximum number of "
     "tokens allowed (1048576)."}),
    ("TGI", 4097, 4000, 422, {"message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. "
     "Given: 4000 `inputs` tokens and 500 `max_new_tokens`"}),
    ("LM Studio", 4096, 5021, 400, {"message": "Trying to keep the first 5021 tokens when context the overflows. "
     "However, the model is loaded with context length of only 4096 tokens, which is not enough."}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("window_tokens", "prompt_tokens", "status", "detail"),
    [row[1:] for row in REFUSALS],
    ids=[row[0] for row in REFUSALS],
)
def test_a_refused_prompt_names_the_window(
    window_tokens: int | None, prompt_tokens: int | None, status: int, detail: dict[str, Any]
) -> None:
    codes = [str(detail[key]) for key in ("code", "type") if key in detail]
    assert refused_window(status, detail, codes, detail["message"]) == (window_tokens, prompt_tokens)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
        (400, "Invalid value for context_length: expected an integer"),
        (429, "Too many tokens: prompt is too long for the limit of tokens per minute"),
    ],
)
def test_other_refusals_are_not_about_the_window(status: int, said: str) -> None:
    assert refused_window(status, {"message": said}, (), said) is None
