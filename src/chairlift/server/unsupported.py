"""Fields that clients of OpenAI's and vLLM's APIs send and that are not implemented.

They are refused by name, since ignoring them would give a wrong answer; a value that asks for
nothing (``"tools": []``, ``"response_format": {"type": "text"}``) is as good as absent.
"""

from __future__ import annotations

from typing import Any

from chairlift.errors import InvalidParameterError

# Name -> values that ask for nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "best_of": (),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "early_stopping": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": (),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "kv_transfer_params": (),
    "length_penalty": (1.0,),
    "logits_processors": ([],),
    "mm_processor_kwargs": (),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "spaces_between_special_tokens": (True,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
}
_UNSUPPORTED_IN_MESSAGES: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": (),
    "reasoning_content": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}


def drop_unused_fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return ``body`` without fields that are null or ask for nothing.

    Raises:
        InvalidParameterError: A field asks for something that is not supported.
    """
    kept = _drop(body, _UNSUPPORTED, path="")
    if "best_of" in body and body["best_of"] is not None:
        _check_best_of(body)
        kept.pop("best_of", None)
    messages = kept.get("messages")
    if isinstance(messages, list):
        kept["messages"] = [
            _drop(message, _UNSUPPORTED_IN_MESSAGES, path=f"messages[{index}].")
            if isinstance(message, dict)
            else message
            for index, message in enumerate(messages)
        ]
    return kept


def _drop(
    fields: dict[str, Any], unsupported: dict[str, tuple[Any, ...]], *, path: str
) -> dict[str, Any]:
    kept = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in unsupported and name != "best_of":
            if not _asks_for_nothing(value, unsupported[name]):
                raise InvalidParameterError(
                    f"{path}{name} is not supported yet; leave it out", param=path + name
                )
            continue
        kept[name] = value
    return kept


def _asks_for_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    # ``True == 1`` in Python: the kind has to agree too, apart from 1 being a fine 1.0.
    is_boolean = isinstance(value, bool)
    return any(value == item and is_boolean == isinstance(item, bool) for item in neutral)


def _check_best_of(body: dict[str, Any]) -> None:
    n = body.get("n") or 1
    if body["best_of"] != n or isinstance(body["best_of"], bool):
        raise InvalidParameterError(
            f"best_of is supported only when it equals n ({n}); leave it out", param="best_of"
        )
