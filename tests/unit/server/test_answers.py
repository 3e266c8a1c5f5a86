"""What whole answers hold, on both endpoints."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.unit.server.fake_engine import FakeEngine, say

from chairlift.outputs import ChoiceOutput, FinishReason
from chairlift.server.responses import ChatCompletionResponse, CompletionResponse

USER = [{"role": "user", "content": "hi"}]


async def complete(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    CompletionResponse.model_validate_json(answer.content)
    parsed: dict[str, Any] = answer.json()
    return parsed


async def chat(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/chat/completions", json={"messages": USER} | body)
    assert answer.status_code == 200, answer.text
    ChatCompletionResponse.model_validate_json(answer.content)
    parsed: dict[str, Any] = answer.json()
    return parsed


async def test_a_completion_has_the_form_of_openai(client: httpx.AsyncClient) -> None:
    answer = await complete(client, model="fake", prompt="hi", max_tokens=3, seed=7)
    assert answer["id"].startswith("cmpl-")
    assert answer["created"] > 1_700_000_000
    del answer["id"], answer["created"]
    assert answer == {
        "object": "text_completion",
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "text": "Hel",
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
                "seed": 7,
            }
        ],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 3,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }


async def test_a_chat_completion_has_the_form_of_openai(client: httpx.AsyncClient) -> None:
    answer = await chat(client, seed=7)
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello"},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
            "seed": 7,
        }
    ]


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("hi", [b"hi"]),
        (["hi", "yo"], [b"hi", b"yo"]),
        ([104, 105], [b"hi"]),
        ([[104, 105], [121, 111]], [b"hi", b"yo"]),
    ],
)
async def test_prompts_come_in_four_forms(
    client: httpx.AsyncClient, engine: FakeEngine, prompt: Any, sent: list[bytes]
) -> None:
    await complete(client, prompt=prompt)
    assert [bytes(request.prompt_token_ids) for request in engine.requests] == sent


async def test_choices_are_numbered_prompt_by_prompt(client: httpx.AsyncClient) -> None:
    answer = await complete(client, prompt=["a", "b"], n=2, echo=True)
    texts = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert texts == [(0, "aHello"), (1, "aHello"), (2, "bHello"), (3, "bHello")]


async def test_usage_sums_over_prompts_and_choices(client: httpx.AsyncClient) -> None:
    answer = await complete(client, prompt=["abc", "b"], n=2)
    assert answer["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 20,
        "total_tokens": 24,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


async def test_a_completion_has_sixteen_tokens_by_default_and_a_chat_no_limit(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    await complete(client, prompt="a")
    await chat(client)
    assert [r.sampling_params.max_tokens for r in engine.requests] == [16, None]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_a_chat_takes_its_limit_under_both_names(
    client: httpx.AsyncClient, name: str
) -> None:
    answer = await chat(client, **{name: 4})
    assert answer["choices"][0]["message"]["content"] == "Hell"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4


async def test_sampling_fields_reach_the_engine(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    fields: dict[str, Any] = {
        "n": 2,
        "min_tokens": 1,
        "temperature": 0.5,
        "top_k": 5,
        "top_p": 0.5,
        "min_p": 0.25,
        "repetition_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "seed": -5,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
    }
    await complete(
        client, prompt="a", stop="x", stop_token_ids=[9], logit_bias={"5": 1}, logprobs=3, **fields
    )
    params = engine.requests[0].sampling_params
    assert {name: getattr(params, name) for name in fields} == fields
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (("x",), (9,), {5: 1.0})
    assert (params.logprobs, params.prompt_logprobs) == (3, None)


async def test_a_cache_salt_reaches_the_engine(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    await complete(client, prompt="a", cache_salt="tenant")
    await chat(client, cache_salt="other")
    assert [r.cache_salt for r in engine.requests] == ["tenant", "other"]


async def test_variables_for_the_chat_template_reach_it(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    await chat(client, chat_template_kwargs={"header": "# "}, add_generation_prompt=False)
    assert bytes(engine.requests[0].prompt_token_ids) == b"# user: hi\n"


async def test_token_ids_are_added_on_request(client: httpx.AsyncClient) -> None:
    completion = await complete(client, prompt="hi", max_tokens=2, return_token_ids=True)
    conversation = await chat(client, max_tokens=2, return_token_ids=True)
    for answer, prompt in ((completion, b"hi"), (conversation, b"user: hi\nassistant: ")):
        choice = answer["choices"][0]
        assert choice["token_ids"] == [ord("H"), ord("e")]
        assert choice["prompt_token_ids"] == list(prompt)


async def test_a_stop_reason_is_reported(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    piece = ChoiceOutput(0, "a", (97,), None, FinishReason.STOP, "END")
    engine.script = lambda request: [[piece]]
    answer = await complete(client, prompt="hi")
    assert answer["choices"][0]["stop_reason"] == "END"


async def test_text_beyond_ascii_arrives_unchanged(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.script = say("Grüße, 雪 \N{GRINNING FACE}", size=100)
    answer = await chat(client)
    assert answer["choices"][0]["message"]["content"] == "Grüße, 雪 \N{GRINNING FACE}"


async def test_a_request_id_is_the_base_of_the_ids(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    answer = await client.post(
        "/v1/completions", json={"prompt": ["a", "b"]}, headers={"x-request-id": "mine"}
    )
    assert (answer.headers["x-request-id"], answer.json()["id"]) == ("mine", "cmpl-mine")
    assert [r.request_id for r in engine.requests] == ["cmpl-mine-0", "cmpl-mine-1"]


async def test_the_request_id_of_the_body_comes_first(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/completions",
        json={"prompt": "a", "request_id": "body"},
        headers={"x-request-id": "header"},
    )
    assert (answer.headers["x-request-id"], answer.json()["id"]) == ("header", "cmpl-body")
