"""Where a model's tokenizer comes from; made by ``models``, consumed by ``tokenization``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The tokenizer of a model folder in Hugging Face format.

    Attributes:
        tokenizer_json: The serialised tokenizer; the file exists.
        config: ``tokenizer_config.json`` as parsed; empty when the folder has none.
        chat_template: Jinja source: ``chat_template.jinja``, or else the (default) template of
            ``tokenizer_config.json``; None when the model has none.
        bos_token, eos_token, pad_token, unk_token: Texts of the special tokens, from
            ``tokenizer_config.json`` or else ``special_tokens_map.json``; None when not named.
        add_bos_token, add_eos_token: What ``tokenizer_config.json`` says; None when silent, and
            then ``tokenizer_json``'s own post-processor decides alone.
    """

    tokenizer_json: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    pad_token: str | None = None
    unk_token: str | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GgufTokenizer:
    """The tokenizer metadata of a GGUF file (keys ``tokenizer.ggml.*``), not yet interpreted.

    Ids are checked to lie inside the vocabulary; whether ``model`` and ``pre`` are supported is
    for ``tokenization`` to say.

    Attributes:
        path: The file it was read from, for messages.
        model: Kind of vocabulary: ``gpt2`` (byte-level BPE), ``llama`` (SentencePiece), ...
        pre: Pre-tokenizer of a ``gpt2`` vocabulary, e.g. ``smollm``; ``default`` when not named.
        tokens: Text of each id. [vocab_size]
        scores: SentencePiece scores. [vocab_size] float32, or None.
        token_types: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
            [vocab_size] int32, or None.
        merges: BPE merges, best first, as ``left right``.
        add_bos, add_eos: None when the file does not say: the kind's own default holds.
        add_space_prefix: SentencePiece puts a space before the text (the default).
        chat_template: Jinja source, or None.
    """

    path: Path
    model: str
    pre: str
    tokens: Sequence[str]
    scores: npt.NDArray[np.float32] | None = None
    token_types: npt.NDArray[np.int32] | None = None
    merges: Sequence[str] = ()
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    unk_token_id: int | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool = True
    chat_template: str | None = None


TokenizerSource: TypeAlias = TokenizerFiles | GgufTokenizer
