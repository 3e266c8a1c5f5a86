"""Chat templates render as in transformers, and refuse in words that a client understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tokenization.tokenizer_builder import Trained, train_byte_level
from tokenizers import pre_tokenizers as pre

from chairlift.errors import InvalidParameterError
from chairlift.tokenization.chat_template import (
    ChatTemplate,
    chat_template_from_source,
    require_chat_template,
)
from chairlift.tokenization.tokenizer import tokenizer_from_source
from chairlift.tokenizer_source import TokenizerFiles

SPECIAL_TOKENS = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}

CHATML = """
{%- if messages[0]['role'] != 'system' -%}
    {{- '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

ALTERNATING = """
{{ bos_token }}
{% for message in messages %}
    {% if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Roles must alternate user/assistant/user/...') }}
    {% endif %}
[{{ message.role | upper }}] {{ message.content | trim }}{{ eos_token if loop.last else '' }}
{% endfor %}
"""

TOOLS = """
{%- if tools is not none %}
Tools: {{ tools | tojson(indent=2) }}
{{ tools[0] | tojson }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {%- if message.role == 'end' %}{% break %}{% endif %}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}
    {%- else %}{{ message.content }}|{% endif %}
{%- endfor %}
{%- if documents is none %} no documents{% endif %}
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}
"""

USER = {"role": "user", "content": "Hi <b>'you'</b> & \"them\" \u96ea"}
ASSISTANT = {"role": "assistant", "content": "  Hello!\n"}
SYSTEM = {"role": "system", "content": "You are terse."}
SKIP, END = {"role": "skip", "content": "x"}, {"role": "end", "content": "y"}
FUNCTION = {"type": "function", "function": {"name": "größe", "parameters": {"<x>": "'y' & z"}}}


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train_byte_level(pre.ByteLevel(add_prefix_space=False), name="gpt-2")


@pytest.mark.parametrize(
    ("source", "messages", "options"),
    [
        (CHATML, [USER], {}),
        (CHATML, [SYSTEM, USER, ASSISTANT, USER], {}),
        (CHATML, [USER, ASSISTANT], {"add_generation_prompt": False}),
        (ALTERNATING, [USER, ASSISTANT, USER], {}),
        (TOOLS, [USER, SKIP, ASSISTANT, END, USER], {"tools": [FUNCTION]}),
        (TOOLS, [USER], {"template_kwargs": {"enable_thinking": False}}),
        (TOOLS, [USER], {"template_kwargs": {"documents": [{"title": "t", "text": "x"}]}}),
    ],
)
def test_prompts_equal_those_of_transformers(
    source: str,
    messages: list[dict[str, Any]],
    options: dict[str, Any],
    trained: Trained,
    tmp_path: Path,
) -> None:
    from transformers import AutoTokenizer

    files = trained.write(tmp_path, chat_template=source, **SPECIAL_TOKENS)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    others = {k: v for k, v in options.items() if k != "template_kwargs"}
    expected = reference.apply_chat_template(
        messages,
        tokenize=False,
        **{"add_generation_prompt": True, **others, **options.get("template_kwargs", {})},
    )
    tokenizer = tokenizer_from_source(files)
    template = chat_template_from_source(files, tokenizer.special_tokens)
    assert template is not None
    assert template.render(messages, **options) == expected
    ids = reference.apply_chat_template(messages, **{"add_generation_prompt": True, **others})
    if "template_kwargs" not in options:
        assert tokenizer.encode(expected, add_special_tokens=False) == ids["input_ids"]


def render(source: str, messages: Sequence[Mapping[str, Any]] = (USER,), **options: Any) -> str:
    return ChatTemplate(source, SPECIAL_TOKENS).render(messages, **options)


def refusal(source: str, messages: Any = (USER,), **options: Any) -> InvalidParameterError:
    with pytest.raises(InvalidParameterError) as caught:
        render(source, messages, **options)
    return caught.value


def test_a_template_that_refuses_is_quoted() -> None:
    error = refusal(ALTERNATING, [USER, USER])
    assert str(error) == (
        "the model's chat template refuses these messages: "
        "Roles must alternate user/assistant/user/..."
    )
    assert error.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[5].content.upper() }}",
        "{{ 1 / 0 }}",
        "{{ nothing.at.all }}",
        "{% if %}",
        "{{ messages.append(1) }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ nothing() }}",
    ],
)
def test_a_template_that_fails_is_the_requests_error(source: str) -> None:
    error = refusal(source)
    assert "chat template cannot render these messages: " in str(error)
    assert error.param == "messages"


def test_text_parts_are_joined_with_newlines() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert render("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "one\ntwo"


def test_a_message_may_have_no_content_and_other_fields() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
    source = "{{ messages[0].content is none }} {{ messages[0].tool_calls[0].id }}"
    assert render(source, [message]) == "True c1"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "messages must be a list of at least one message"),
        ("Hi", "messages must be a list"),
        (["Hi"], "messages[0] must be an object with a role"),
        ([USER, {"content": "x"}], "messages[1] must be an object with a role"),
        ([{"role": 1, "content": "x"}], "messages[0] must be an object with a role"),
        ([{"role": "user", "content": 5}], "messages[0].content must be a string or a list"),
        ([{"role": "user", "content": b"x"}], "messages[0].content must be a string or a list"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            "messages[0].content[0] must be",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0] must be"),
        ([{"role": "user", "content": ["x"]}], "got type 'x'"),
    ],
)
def test_malformed_messages_are_refused_with_their_place(messages: Any, message: str) -> None:
    error = refusal(CHATML, messages)
    assert message in str(error)
    assert error.param == "messages"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_template_variables_cannot_replace_the_requests_own(name: str) -> None:
    error = refusal(CHATML, template_kwargs={name: None})
    assert f"must not set {name}" in str(error)
    assert error.param == "chat_template_kwargs"


def test_the_caller_keeps_its_messages_as_they_are() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x"}]}
    render(CHATML, [message])
    assert message == {"role": "user", "content": [{"type": "text", "text": "x"}]}


def test_templates_can_ask_for_the_date() -> None:
    before = datetime.now()
    text = render("{{ strftime_now('%Y-%m-%d') }}")
    assert text in {moment.strftime("%Y-%m-%d") for moment in (before, datetime.now())}


def test_special_tokens_that_a_model_lacks_are_empty_text() -> None:
    assert render("[{{ bos_token }}{{ pad_token }}]") == "[<|endoftext|>]"


def test_a_model_without_a_template_says_so() -> None:
    template = chat_template_from_source(TokenizerFiles(Path("tokenizer.json")), {})
    with pytest.raises(InvalidParameterError, match=r"tiny has no chat template.*v1/completions"):
        require_chat_template(template, "tiny")


def test_a_template_that_is_there_is_given_back() -> None:
    template = ChatTemplate(CHATML, {})
    assert require_chat_template(template, "tiny") is template
