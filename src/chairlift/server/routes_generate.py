"""``POST /v1/completions`` and ``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chairlift.inputs import Account, GenerateRequest
from chairlift.sampling_params import SamplingParams
from chairlift.server.answer_spec import AnswerSpec, ChoiceStyle
from chairlift.server.answer_writer import AnswerWriter
from chairlift.server.choice_styles import ChatStyle, CompletionStyle
from chairlift.server.connection import run_while_connected
from chairlift.server.context import ServerContext, context_of, request_id_of, tenant_of
from chairlift.server.convert import (
    Prompt,
    chat_sampling_params,
    check_stream_options,
    completion_sampling_params,
    prompts_of,
    validate,
)
from chairlift.server.engine_client import OutputStream
from chairlift.server.event_stream import EventStream
from chairlift.server.generation import start_all, stream_outputs, whole_outputs
from chairlift.server.json_body import read_json_object
from chairlift.server.protocol import ChatCompletionRequest, CompletionRequest, SamplingFields


async def create_completion(request: Request) -> Response:
    """Continue one or more prompts."""
    context = context_of(request)
    body = await read_json_object(request, context.settings.max_body_bytes)
    fields = validate(CompletionRequest, body)
    model = context.check_model(fields.model)
    check_stream_options(fields)
    params = completion_sampling_params(fields)
    account = context.door.account(tenant_of(request), fields.priority)
    prompts = prompts_of(fields.prompt)
    request_id = f"cmpl-{request_id_of(request, fields.request_id)}"
    with context.door.enter(account, len(prompts) * params.n):
        submitted = await _process(context, fields, request_id, prompts, params, account)
        outputs = start_all(context.engine, submitted, is_streamed=fields.stream)
    echoed = _echoed_texts(context, prompts) if fields.echo else ()
    spec = _spec(fields, request_id, model, fields.logprobs is not None, echoed)
    style = CompletionStyle(spec, context.texts)
    return await _answer(request, fields, outputs, spec, style)


async def create_chat_completion(request: Request) -> Response:
    """Answer a conversation."""
    context = context_of(request)
    body = await read_json_object(request, context.settings.max_body_bytes)
    fields = validate(ChatCompletionRequest, body)
    model = context.check_model(fields.model)
    check_stream_options(fields)
    params = chat_sampling_params(fields)
    account = context.door.account(tenant_of(request), fields.priority)
    request_id = f"chatcmpl-{request_id_of(request, fields.request_id)}"
    with context.door.enter(account, params.n):
        prompt = context.render_chat(
            fields.messages,
            add_generation_prompt=fields.add_generation_prompt,
            template_kwargs=fields.chat_template_kwargs,
        )
        submitted = await context.engine.input_processor.process(
            request_id,
            prompt,
            params,
            add_special_tokens=fields.add_special_tokens,
            cache_salt=fields.cache_salt or "",
            account=account,
            param="messages",
        )
        outputs = start_all(context.engine, [submitted], is_streamed=fields.stream)
    spec = _spec(fields, request_id, model, fields.logprobs)
    return await _answer(request, fields, outputs, spec, ChatStyle(spec, context.texts))


async def _process(
    context: ServerContext,
    fields: CompletionRequest,
    request_id: str,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    account: Account,
) -> list[GenerateRequest]:
    return [
        await context.engine.input_processor.process(
            request_id if len(prompts) == 1 else f"{request_id}-{index}",
            prompt,
            params,
            add_special_tokens=fields.add_special_tokens,
            cache_salt=fields.cache_salt or "",
            account=account,
        )
        for index, prompt in enumerate(prompts)
    ]


def _echoed_texts(context: ServerContext, prompts: Sequence[Prompt]) -> tuple[str, ...]:
    tokenizer = context.engine.tokenizer
    return tuple(
        prompt if isinstance(prompt, str) else tokenizer.decode(prompt, skip_special_tokens=False)
        for prompt in prompts
    )


def _spec(
    fields: SamplingFields,
    request_id: str,
    model: str,
    has_logprobs: bool,
    echoed_texts: tuple[str, ...] = (),
) -> AnswerSpec:
    options = fields.stream_options
    include_usage = bool(options and options.include_usage)
    return AnswerSpec(
        response_id=request_id,
        model=model,
        created=int(time.time()),
        num_choices=fields.n,
        has_logprobs=has_logprobs,
        has_prompt_logprobs=fields.prompt_logprobs is not None,
        has_token_ids=fields.return_token_ids,
        include_usage=include_usage,
        continuous_usage=include_usage and bool(options and options.continuous_usage_stats),
        echoed_texts=echoed_texts,
    )


async def _answer(
    request: Request,
    fields: SamplingFields,
    outputs: Sequence[OutputStream],
    spec: AnswerSpec,
    style: ChoiceStyle,
) -> Response:
    context = context_of(request)
    writer = AnswerWriter(spec, style, context.texts)
    if fields.stream:
        return EventStream(_events(outputs, writer))
    whole = await run_while_connected(request.receive, whole_outputs(outputs))
    return Response(writer.whole(whole), media_type="application/json")


async def _events(
    outputs: Sequence[OutputStream], writer: AnswerWriter
) -> AsyncGenerator[bytes, None]:
    async with aclosing(stream_outputs(outputs)) as pieces:
        async for prompt_index, output in pieces:
            yield writer.chunks(prompt_index, output)
    yield writer.end()


ROUTES = (
    Route("/v1/completions", create_completion, methods=["POST"]),
    Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
)
