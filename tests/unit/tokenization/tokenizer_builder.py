"""Small tokenizers trained in the test, as a tokenizer.json folder and as GGUF metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.tokenization.samples import TEXTS
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre

from chairlift.tokenizer_source import GgufTokenizer, TokenizerFiles

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED_TOKENS = ("<think>", "    ")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


@dataclass(frozen=True)
class Trained:
    """One vocabulary in both formats."""

    backend: Tokenizer
    gguf: GgufTokenizer

    def write(self, folder: Path, **config: Any) -> TokenizerFiles:
        """Write a folder that transformers loads; ``config`` goes into tokenizer_config.json."""
        folder.mkdir(exist_ok=True)
        path = folder / "tokenizer.json"
        self.backend.save(str(path))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
        names = ("bos_token", "eos_token", "pad_token", "unk_token", "chat_template")
        flags = ("add_bos_token", "add_eos_token")
        known = {name: config.get(name) for name in (*names, *flags)}
        return TokenizerFiles(path, config=config, **known)


def train_byte_level(
    pre_tokenizer: pre.PreTokenizer,
    *,
    name: str,
    normalizer: normalizers.Normalizer | None = None,
    vocab_size: int = 700,
    **bpe_options: Any,
) -> Trained:
    """Train byte-level BPE whose words ``pre_tokenizer`` cuts; ``name`` is its name in GGUF."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
    )
    backend = Tokenizer(models.BPE(**bpe_options))
    backend.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(list(TEXTS) * 3, trainer)
    backend.add_special_tokens([AddedToken(t, normalized=False) for t in CONTROL_TOKENS])
    backend.add_tokens([AddedToken(t, normalized=False) for t in USER_DEFINED_TOKENS])
    types = {**dict.fromkeys(CONTROL_TOKENS, CONTROL)}
    types |= dict.fromkeys(USER_DEFINED_TOKENS, USER_DEFINED)
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(backend.get_vocab(), key=backend.get_vocab().__getitem__)
    return Trained(
        backend,
        GgufTokenizer(
            path=Path("trained.gguf"),
            model="gpt2",
            pre=name,
            tokens=tokens,
            token_types=np.array([types.get(token, NORMAL) for token in tokens], np.int32),
            merges=[" ".join(pair) for pair in model["merges"]],
            bos_token_id=tokens.index("<|endoftext|>"),
            eos_token_id=tokens.index("<|im_end|>"),
        ),
    )


def sentencepiece_vocabulary(vocab_size: int = 400) -> tuple[list[str], list[float], list[int]]:
    """Tokens, scores and types of a vocabulary as SentencePiece's BPE trainer makes them.

    Unknown, BOS, EOS, the bytes, then the pieces in the order of training and scored by it, then
    the single characters.
    """
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre.Metaspace(prepend_scheme="always")
    backend.train_from_iterator([text for text in TEXTS if text.isascii()] * 3, trainer)
    trained = sorted(backend.get_vocab(), key=backend.get_vocab().__getitem__)
    pieces = [piece for piece in trained if len(piece) > 1]
    pieces += [piece for piece in trained if len(piece) == 1]
    head = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    scores = [0.0] * len(head) + [-float(i) for i in range(len(pieces))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)]
    return head + pieces, scores, types


def sentencepiece_gguf(**changes: Any) -> GgufTokenizer:
    """GGUF metadata of :func:`sentencepiece_vocabulary`."""
    tokens, scores, types = sentencepiece_vocabulary()
    source = GgufTokenizer(
        path=Path("trained.gguf"),
        model="llama",
        pre="default",
        tokens=tokens,
        scores=np.array(scores, np.float32),
        token_types=np.array(types, np.int32),
        bos_token_id=1,
        eos_token_id=2,
        unk_token_id=0,
    )
    return replace(source, **changes)


def sentencepiece_json(
    tokens: Sequence[str], merges: Sequence[tuple[str, str]], *, strip: bool = True
) -> Tokenizer:
    """The same vocabulary as the tokenizer.json of a Llama 2 spells it."""
    vocabulary: Mapping[str, int] = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    specials = [AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")]
    backend.add_special_tokens(specials)
    return backend
