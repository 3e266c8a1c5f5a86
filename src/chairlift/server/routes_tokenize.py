"""``POST /tokenize`` and ``POST /detokenize``, as in vLLM."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chairlift.errors import InvalidParameterError
from chairlift.server.context import ServerContext, context_of
from chairlift.server.convert import token_ids_of, validate
from chairlift.server.json_body import read_json_object
from chairlift.server.protocol import DetokenizeRequest, TokenizeRequest


async def tokenize(request: Request) -> Response:
    """Turn a prompt, or the messages of a conversation, into token ids."""
    context = context_of(request)
    body = await read_json_object(request, context.settings.max_body_bytes)
    fields = validate(TokenizeRequest, body)
    context.check_model(fields.model)
    text, param = _text_of(context, fields)
    add_special_tokens = fields.add_special_tokens
    if add_special_tokens is None:
        add_special_tokens = param == "prompt"
    tokens = await context.engine.input_processor.tokenize(
        text, add_special_tokens=add_special_tokens, param=param
    )
    strings = [context.texts.text(token) for token in tokens] if fields.return_token_strs else None
    answer = {
        "count": len(tokens),
        "max_model_len": context.engine.limits.max_model_len,
        "tokens": tokens,
        "token_strs": strings,
    }
    return Response(to_json(answer), media_type="application/json")


async def detokenize(request: Request) -> Response:
    """Turn token ids into text, special tokens included."""
    context = context_of(request)
    body = await read_json_object(request, context.settings.max_body_bytes)
    fields = validate(DetokenizeRequest, body)
    context.check_model(fields.model)
    tokens = token_ids_of(fields.tokens, context.engine.limits.vocab_size)
    text = context.engine.tokenizer.decode(tokens, skip_special_tokens=False)
    return Response(to_json({"prompt": text}), media_type="application/json")


def _text_of(context: ServerContext, fields: TokenizeRequest) -> tuple[str, str]:
    if (fields.prompt is None) == (fields.messages is None):
        raise InvalidParameterError("send either prompt or messages", param="prompt")
    if fields.prompt is not None:
        return fields.prompt, "prompt"
    text = context.render_chat(
        fields.messages or (),
        add_generation_prompt=fields.add_generation_prompt,
        template_kwargs=fields.chat_template_kwargs,
    )
    return text, "messages"


ROUTES = (
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
)
