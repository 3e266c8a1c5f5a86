"""The engine as a plain object: prompts in, answers out, in the caller's own thread."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from chairlift.config import DEFAULT_MODEL, EngineConfig, EngineLimits
from chairlift.engine.input_processor import InputProcessor, fan_out
from chairlift.engine.interrupts import deferred_interrupt
from chairlift.engine.messages import EngineInfo
from chairlift.engine.options import engine_config
from chairlift.engine.output_processor import OutputProcessor
from chairlift.engine.phase_timer import PhaseCallback
from chairlift.engine.progress import progress_bar
from chairlift.engine.stats import EngineStats, engine_stats
from chairlift.engine.whole_engine import BuiltEngine, build_engine
from chairlift.errors import EngineDeadError, InvalidParameterError, RequestFailedError
from chairlift.inputs import GenerateRequest
from chairlift.outputs import RequestOutput
from chairlift.sampling_params import SamplingParams
from chairlift.tokenization.chat_template import ChatTemplate, require_chat_template
from chairlift.tokenization.tokenizer import Tokenizer

Prompt: TypeAlias = str | Sequence[int]
Conversation: TypeAlias = Sequence[Mapping[str, Any]]
Params: TypeAlias = SamplingParams | Sequence[SamplingParams]


class LLM:
    """A loaded model that answers batches of prompts with continuous batching.

    Everything happens inside the calls, in the thread of the caller; use it from one thread at a
    time. Also a context manager.

    Args:
        model: Alias (``smollm2-135m``), .gguf file, Hugging Face folder or Hugging Face id.
        on_phase: Told each part of the start, with its seconds, as it ends.
        options: Fields of the engine's configuration by name, for example ``max_num_seqs=32`` or
            ``dtype="float32"``; see :func:`~chairlift.engine.options.engine_config`.

    Raises:
        ConfigError: An option is unknown, or cannot work with the model or the machine.
        ModelLoadError: The model cannot be found or loaded.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        on_phase: PhaseCallback | None = None,
        **options: Any,
    ) -> None:
        self._set_up(build_engine(engine_config(model, **options), on_phase))

    @classmethod
    def from_config(cls, config: EngineConfig, *, on_phase: PhaseCallback | None = None) -> LLM:
        """Make one from a whole configuration."""
        return cls._from_built(build_engine(config, on_phase))

    @classmethod
    def _from_built(cls, built: BuiltEngine) -> LLM:
        llm = cls.__new__(cls)
        llm._set_up(built)
        return llm

    def _set_up(self, built: BuiltEngine) -> None:
        self._built: BuiltEngine | None = built
        self._info = built.info
        self._front = built.front
        self._inputs = InputProcessor(built.front.tokenizer, built.info.limits)
        self._outputs = OutputProcessor(built.front.tokenizer)
        self._stats = built.info.stats
        self._news: dict[str, None] = {}  # answers with something to take
        self._ids = itertools.count()
        self._end = ""  # why nothing can be computed any more

    @property
    def limits(self) -> EngineLimits:
        """The one bound for requests."""
        return self._info.limits

    @property
    def info(self) -> EngineInfo:
        """What is known of the engine since its start, the parts of the start among it."""
        return self._info

    @property
    def model_name(self) -> str:
        """What users call the model."""
        return self._front.model_name

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._front.tokenizer

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The model's chat template, if it has one."""
        return self._front.chat_template

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params | None = None,
        *,
        use_progress: bool = False,
    ) -> list[RequestOutput]:
        """Continue prompts.

        Args:
            prompts: A text or a list of token ids, or a list of those.
            sampling_params: For all prompts, or one for each; ``None``: the defaults.
            use_progress: Show a progress bar on standard error.

        Returns:
            The whole answers, in the order of the prompts.

        Raises:
            InvalidParameterError, ContextLengthError: A prompt or its parameters cannot be
                served; nothing has been computed then.
            RequestFailedError: The engine failed at least one request; the others ran to their end.
            EngineDeadError: Nothing can be computed any more.
        """
        listed = _as_prompts(prompts)
        requests = [
            self._inputs.process(self._next_id(), prompt, params)
            for prompt, params in zip(listed, _for_each(sampling_params, len(listed)), strict=True)
        ]
        return self._run(requests, use_progress)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: Params | None = None,
        *,
        use_progress: bool = False,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer conversations, written out with the model's chat template.

        Args:
            messages: A list of messages with ``role`` and ``content``, or a list of such lists.
            add_generation_prompt: End the prompt with the start of the assistant's answer.
            template_kwargs: Further variables for the template.

        Returns:
            As :meth:`generate`.

        Raises:
            InvalidParameterError: The template refuses the messages, or the model has none.
            Exception: As :meth:`generate`.
        """
        listed = _as_conversations(messages)
        requests = [
            self._chat_request(conversation, params, add_generation_prompt, template_kwargs)
            for conversation, params in zip(
                listed, _for_each(sampling_params, len(listed)), strict=True
            )
        ]
        return self._run(requests, use_progress)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[RequestOutput]:
        """Continue one prompt piece by piece; closing the iterator ends the request.

        Raises:
            Exception: As :meth:`generate`; what can be checked is checked at once.
        """
        params = sampling_params or SamplingParams()
        return self._pieces(self._inputs.process(self._next_id(), prompt, params))

    def stream_chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> Iterator[RequestOutput]:
        """Answer one conversation piece by piece; closing the iterator ends the request."""
        params = sampling_params or SamplingParams()
        return self._pieces(
            self._chat_request(messages, params, add_generation_prompt, template_kwargs)
        )

    def stats(self) -> EngineStats:
        """Gauges, counters and step times as of the last step."""
        return engine_stats(self._stats, self._outputs.observations, self._outputs.num_live_choices)

    def close(self) -> None:
        """Let go of the model and the KV cache. May be called again.

        Packed weights that are still on their way to the cache are written first.
        """
        if self._built is not None and self._built.saving is not None:
            self._built.saving.finish()
        self._built = None
        self._end = self._end or "it has been closed"

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _chat_request(
        self,
        messages: Conversation,
        params: SamplingParams,
        add_generation_prompt: bool,
        template_kwargs: Mapping[str, Any] | None,
    ) -> GenerateRequest:
        template = require_chat_template(self.chat_template, self.model_name)
        text = template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            template_kwargs=template_kwargs,
        )
        return self._inputs.process(
            self._next_id(), text, params, add_special_tokens=False, param="messages"
        )

    def _next_id(self) -> str:
        return str(next(self._ids))

    def _run(self, requests: list[GenerateRequest], use_progress: bool) -> list[RequestOutput]:
        done: dict[str, RequestOutput] = {}
        errors: list[RequestFailedError] = []
        pending = {request.request_id for request in requests}
        try:
            for request in requests:
                self._submit(request, is_streamed=False)
            with progress_bar(len(requests), is_shown=use_progress) as advance:
                while pending:
                    self._step()
                    for key in self._news.keys() & pending:
                        pending.discard(key)
                        try:
                            done[key] = self._take(key)
                        except RequestFailedError as error:
                            errors.append(error)
                        else:
                            advance(done[key].num_output_tokens)
        finally:
            self._abandon(pending)
        if errors:
            raise RequestFailedError(f"{len(errors)} of {len(requests)} failed: {errors[0]}")
        return [done[request.request_id] for request in requests]

    def _pieces(self, request: GenerateRequest) -> Iterator[RequestOutput]:
        key = request.request_id
        try:
            self._submit(request, is_streamed=True)
            is_finished = False
            while not is_finished:
                while key not in self._news:
                    self._step()
                piece = self._take(key)
                is_finished = piece.finished
                yield piece
        finally:
            self._abandon([key])

    def _submit(self, request: GenerateRequest, *, is_streamed: bool) -> None:
        core_requests = fan_out(request, request.request_id, self._front.eos_token_ids)
        core = self._live().core
        self._outputs.add(
            request.request_id,
            request,
            [core_request.request_id for core_request in core_requests],
            is_streamed=is_streamed,
        )
        for core_request in core_requests:
            core.add_request(core_request)

    def _step(self) -> None:
        """One step of the engine; who got something is noted in ``_news``."""
        core = self._live().core
        if wait_s := core.wait_s():
            time.sleep(wait_s)
        with deferred_interrupt():
            try:
                outputs = core.step()
            except EngineDeadError as error:
                self._end = str(error)
                raise
            processed = self._outputs.process(outputs, time.monotonic())
            core.abort(processed.aborts)
            self._news |= processed.news
            self._stats = core.stats()

    def _take(self, key: str) -> RequestOutput:
        del self._news[key]
        return self._outputs.take(key)

    def _abandon(self, keys: Collection[str]) -> None:
        """Forget requests, whatever they are doing."""
        core_ids = [core_id for key in keys for core_id in self._outputs.remove(key)]
        for key in keys:
            self._news.pop(key, None)
        if core_ids and self._built is not None:
            self._built.core.abort(core_ids)

    def _live(self) -> BuiltEngine:
        if self._built is None or self._end:
            raise EngineDeadError(f"this engine cannot compute any more: {self._end}")
        return self._built


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """One prompt as a list of one."""
    if isinstance(prompts, str):
        return [prompts]
    if len(prompts) == 0:
        raise InvalidParameterError("prompts must hold at least one prompt, got none")
    first = prompts[0]
    is_ids = not isinstance(first, str) and hasattr(first, "__index__")
    return [prompts] if is_ids else prompts  # type: ignore[list-item,return-value]


def _as_conversations(messages: Conversation | Sequence[Conversation]) -> Sequence[Conversation]:
    """One conversation as a list of one."""
    if len(messages) == 0:
        raise InvalidParameterError("messages must hold at least one message, got none")
    is_one = isinstance(messages[0], Mapping)
    return [messages] if is_one else messages  # type: ignore[list-item,return-value]


def _for_each(sampling_params: Params | None, num_prompts: int) -> Sequence[SamplingParams]:
    """One set of parameters for each prompt."""
    if sampling_params is None:
        sampling_params = SamplingParams()
    if isinstance(sampling_params, SamplingParams):
        return [sampling_params] * num_prompts
    if len(sampling_params) != num_prompts:
        raise InvalidParameterError(
            f"sampling_params must be one for all prompts or one for each: got "
            f"{len(sampling_params)} for {num_prompts} prompts"
        )
    return sampling_params
