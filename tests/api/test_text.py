"""Stop strings, characters in pieces, logprobs, usage: with a model whose text is known."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.serving import Server

ALPHABET = "Here is the English alphabet: ABC"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def both_modes(server: Server, prompt: str, **fields: Any) -> tuple[str, str | None]:
    """Text and finish reason, which must be the same whole and streamed."""
    body = {"prompt": prompt, "temperature": 0} | fields
    whole = server.post("/v1/completions", body)["choices"][0]
    *chunks, done = server.stream("/v1/completions", body)
    pieces = [choice for chunk in chunks for choice in chunk["choices"]]
    streamed = "".join(piece["text"] for piece in pieces)
    reasons = [piece["finish_reason"] for piece in pieces if piece["finish_reason"]]
    assert (streamed, reasons, done) == (whole["text"], [whole["finish_reason"]], "[DONE]")
    return whole["text"], whole["finish_reason"]


@pytest.mark.parametrize(
    ("stop", "text"),
    [("DEFGHIJ", ""), ("FGHIJ", "DE"), (["xyz", "GH", "HI"], "DEF"), ("J", "DEFGHI")],
)
def test_nothing_of_a_stop_string_is_sent(
    text_server: Server, stop: str | list[str], text: str
) -> None:
    """vllm#3574"""
    assert both_modes(text_server, ALPHABET, stop=stop, max_tokens=32) == (text, "stop")


def test_the_start_of_a_stop_string_that_does_not_come_is_sent(text_server: Server) -> None:
    assert both_modes(text_server, ALPHABET, stop="GHX", max_tokens=5) == ("DEFGH", "length")


def test_a_stop_string_can_be_kept(text_server: Server) -> None:
    fields = {"stop": "FG", "include_stop_str_in_output": True, "max_tokens": 32}
    assert both_modes(text_server, ALPHABET, **fields) == ("DEFG", "stop")


@pytest.mark.parametrize("offset", range(47, 53))
def test_a_stop_string_at_any_place_gives_the_same_text_in_both_modes(
    text_server: Server, offset: int
) -> None:
    """sglang#35157: no internal buffer border shows."""
    stop = LETTERS[offset : offset + 4]
    assert both_modes(text_server, "A", stop=stop, max_tokens=60) == (LETTERS[1:offset], "stop")


@pytest.mark.parametrize("stop", ["", [""], ["a", ""]])
@pytest.mark.parametrize("stream", [True, False])
def test_an_empty_stop_string_is_refused(
    text_server: Server, stop: str | list[str], stream: bool
) -> None:
    """sglang#38712"""
    body = {"prompt": "a", "stop": stop, "stream": stream}
    assert text_server.refused("/v1/completions", body)["param"] == "stop"


def test_a_stop_as_the_first_token_leaves_consistent_logprobs(text_server: Server) -> None:
    """llama.cpp#7038"""
    answer = text_server.complete("Q: hello world \nA: ", stop=["\n"], logprobs=10, max_tokens=8)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", "\n")
    assert choice["logprobs"]["tokens"] == ["\n"]
    assert len(choice["logprobs"]["top_logprobs"][0]) == 10
    assert answer["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("text", ["\N{SKI AND SKI BOOT}", "\u96ea"])
def test_characters_of_several_tokens_are_never_cut(text_server: Server, text: str) -> None:
    """vllm-mlx#109: three and four tokens a character."""
    num_tokens = 10 * len(text.encode())
    assert both_modes(text_server, text, max_tokens=num_tokens) == (text * 10, "length")
    events = text_server.stream("/v1/completions", {"prompt": text, "max_tokens": num_tokens})
    pieces = [event["choices"][0]["text"] for event in events if event != "[DONE]"]
    assert all("\ufffd" not in piece for piece in pieces)


def test_the_end_of_sequence_token_stops_and_shows_no_text(text_server: Server) -> None:
    assert both_modes(text_server, "well!", max_tokens=32) == (".", "stop")


def test_a_stop_token_id_stops_and_is_reported(text_server: Server) -> None:
    choice = text_server.complete("A", stop_token_ids=[ord("D")], max_tokens=32)["choices"][0]
    assert (choice["text"], choice["stop_reason"]) == ("BC", ord("D"))


def test_no_stop_ends_a_request_before_its_least_length(text_server: Server) -> None:
    fields = {"stop": ["D", "F"], "min_tokens": 4, "max_tokens": 32}
    assert both_modes(text_server, "A", **fields) == ("BCDE", "stop")


def test_a_chat_is_answered_through_the_model_s_template(text_server: Server) -> None:
    assert text_server.chat("hi", max_tokens=4)["choices"][0]["message"] == {
        "role": "assistant",
        "content": "ABCD",
    }


def test_a_template_s_refusal_is_passed_on(text_server: Server) -> None:
    """vllm#17119"""
    body = {"messages": [{"role": "wizard", "content": "a"}]}
    error = text_server.refused("/v1/chat/completions", body)
    assert "this template knows no role wizard" in error["message"]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_chat_keeps_its_limit_and_says_length(text_server: Server, name: str) -> None:
    """llama-cpp-python#1907"""
    answer = text_server.chat("hi", **{name: 5})
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_prompt_can_be_scored_with_nothing_generated(text_server: Server) -> None:
    """vllm#6521"""
    choice = text_server.complete("Your answer: Yes", echo=True, max_tokens=0, logprobs=1)[
        "choices"
    ][0]
    assert choice["text"] == "Your answer: Yes"
    assert len(choice["logprobs"]["token_logprobs"]) == 16
    assert choice["logprobs"]["token_logprobs"][0] is None


def test_impossible_alternatives_do_not_break_the_answer(text_server: Server) -> None:
    """vllm#10234"""
    fields = {"echo": True, "logprobs": 1, "top_k": 1, "temperature": 1, "max_tokens": 2}
    choice = text_server.complete("correct horse battery staple", **fields)["choices"][0]
    assert all(value > -10_000 for value in choice["logprobs"]["token_logprobs"][1:])


def test_a_scoring_harness_gets_what_it_reads(text_server: Server) -> None:
    """llama.cpp#27174: prompt + 1 entries, and greedy is recognised by equal numbers."""
    prompts = [list(b"ABCD"), list(b"ABXY")]
    answer = text_server.complete(prompts, echo=True, max_tokens=1, logprobs=1, seed=1234)
    greedy = []
    for choice in sorted(answer["choices"], key=lambda choice: choice["index"]):
        logprobs = choice["logprobs"]
        assert len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]) == 5
        assert logprobs["token_logprobs"][0] is None
        scored = zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
        greedy.append([value == max(top.values()) for value, top in list(scored)[2:-1]])
    assert greedy == [[True, True], [False, True]]


@pytest.mark.parametrize(
    ("options", "num_usages"),
    [({}, 0), ({"stream_options": {}}, 0), ({"stream_options": {"include_usage": True}}, 1)],
)
def test_a_stream_has_a_usage_only_when_asked_in_a_last_chunk_without_choices(
    text_server: Server, options: dict[str, Any], num_usages: int
) -> None:
    """vllm#36379"""
    *chunks, done = text_server.stream(
        "/v1/completions", {"prompt": "A", "max_tokens": 4} | options
    )
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert (len(usages), done) == (num_usages, "[DONE]")
    if usages:
        assert chunks[-1]["choices"] == []
        assert usages[0]["total_tokens"] == 5


def test_each_streamed_choice_has_one_finish_reason(text_server: Server) -> None:
    """sglang#8417"""
    body = {"prompt": ["A", "well!"], "n": 2, "max_tokens": 4, "temperature": 0}
    *chunks, _ = text_server.stream("/v1/completions", body)
    reasons = sorted(
        (choice["index"], choice["finish_reason"])
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["finish_reason"]
    )
    assert reasons == [(0, "length"), (1, "length"), (2, "stop"), (3, "stop")]


def test_the_openai_client_reads_both_endpoints_in_both_modes(text_server: Server) -> None:
    client = text_server.openai
    model = client.models.list().data[0].id
    messages: Any = [{"role": "user", "content": "hi"}]
    completion = client.completions.create(
        model=model, prompt="A", max_tokens=3, temperature=0, logprobs=2
    )
    assert completion.choices[0].text == "BCD"
    assert completion.choices[0].logprobs is not None
    answer = client.chat.completions.create(
        model=model, messages=messages, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
    )
    assert answer.choices[0].message.content == "ABC"
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert [len(token.top_logprobs) for token in logprobs.content] == [2, 2, 2]
    stream = client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=3,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == "ABC"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 3
