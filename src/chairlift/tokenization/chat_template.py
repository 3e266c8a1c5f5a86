"""Messages to prompt text, with the Jinja template that the model brings along.

The template runs in a sandbox: it comes from the model's files. What it can call is what
transformers offers (``raise_exception``, ``strftime_now``, ``tojson`` without HTML escapes, loop
controls, ``{% generation %}``), so that a template renders to the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from chairlift.errors import InvalidParameterError
from chairlift.tokenizer_source import TokenizerSource

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})


class ChatTemplate:
    """A model's chat template; jinja2 is imported and the template compiled on first use."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Keep the template.

        Args:
            source: Jinja text.
            special_tokens: What the template knows as ``bos_token``, ``eos_token``, ...; see
                :attr:`chairlift.tokenization.tokenizer.Tokenizer.special_tokens`.
        """
        self.source = source
        self._special_tokens = special_tokens

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Write a conversation as the prompt text that the model was trained on.

        The text holds its own BOS, if the model wants one: encode it without adding special
        tokens. A default system prompt is the template's affair.

        Args:
            messages: At least one, each with a ``role``. ``content`` is a string, None, or a list
                of ``{"type": "text", "text": ...}`` parts, which are joined with newlines.
            add_generation_prompt: End with the header of the assistant's turn.
            tools: JSON schemas of functions, given to the template as they are.
            template_kwargs: More variables for the template, e.g. ``enable_thinking``.

        Raises:
            InvalidParameterError: ``messages`` is malformed, or the template refuses it or fails.
        """
        variables = dict(template_kwargs or {})
        if reserved := sorted(_RESERVED & variables.keys()):
            raise InvalidParameterError(
                f"chat_template_kwargs must not set {', '.join(reserved)}: the request's own "
                "fields do",
                param="chat_template_kwargs",
            )
        try:
            return self._template.render(
                {
                    "documents": None,
                    **self._special_tokens,
                    **variables,
                    "messages": _plain_messages(messages),
                    "tools": list(tools) if tools is not None else None,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except InvalidParameterError:
            raise
        except Exception as error:  # a template can fail in any way that an expression can
            raise InvalidParameterError(
                f"the model's chat template cannot render these messages: {error}",
                param="messages",
            ) from error

    @cached_property
    def _template(self) -> Template:
        return _environment().from_string(self.source)


def chat_template_from_source(
    source: TokenizerSource, special_tokens: Mapping[str, str]
) -> ChatTemplate | None:
    """The model's chat template, or None when its files hold none."""
    if source.chat_template is None:
        return None
    return ChatTemplate(source.chat_template, special_tokens)


def require_chat_template(template: ChatTemplate | None, model_name: str) -> ChatTemplate:
    """Give back the template.

    Raises:
        InvalidParameterError: There is none.
    """
    if template is None:
        raise InvalidParameterError(
            f"the model {model_name} has no chat template, so it cannot take messages; send a "
            "prompt to /v1/completions instead",
            param="messages",
        )
    return template


def _plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise InvalidParameterError(
            f"messages must be a list of at least one message, got {messages!r:.80}",
            param="messages",
        )
    return [_plain_message(message, i) for i, message in enumerate(messages)]


def _plain_message(message: Mapping[str, Any], index: int) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidParameterError(
            f"messages[{index}] must be an object with a role, got {message!r:.80}",
            param="messages",
        )
    content = message.get("content")
    if content is None or isinstance(content, str):
        return dict(message)
    return {**message, "content": _join_parts(content, index)}


def _join_parts(content: object, index: int) -> str:
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise InvalidParameterError(
            f"messages[{index}].content must be a string or a list of text parts, got "
            f"{content!r:.80}",
            param="messages",
        )
    return "\n".join([_part_text(part, index, i) for i, part in enumerate(content)])


def _part_text(part: object, index: int, part_index: int) -> str:
    if isinstance(part, Mapping):
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            return text
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise InvalidParameterError(
        f'messages[{index}].content[{part_index}] must be {{"type": "text", "text": "..."}}, got '
        f"type {kind!r:.80}: this server takes text only",
        param="messages",
    )


def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import ext, nodes, parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(ext.Extension):
        """Reads ``{% generation %}``, a mark for training that changes nothing in the text."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: parser.Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: object) -> NoReturn:
    raise InvalidParameterError(
        f"the model's chat template refuses these messages: {message}", param="messages"
    )


def _strftime_now(format_: str) -> str:
    return datetime.now().strftime(format_)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
