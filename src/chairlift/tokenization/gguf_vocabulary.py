"""Build a tokenizer from a GGUF file's metadata.

The file holds the vocabulary, merges or scores, and the kind of each token; the rules for cutting
text come from :mod:`chairlift.tokenization.pre_tokenizers`. The result gives the ids that the
model's original tokenizer gives. Where transformers, reading a GGUF file, departs from those
(it leaves out digit splitting, NFC, and user-defined tokens of spaces; it adds no space before a
text that starts with one), the original rules here.

Building is part of the server's start. One core of a 2-core cloud machine takes 0.06 s for
SmolLM2 (49,000 tokens and as many merges) and about 0.4 s for 128,000 tokens and 136,000 merges;
reading the same from a tokenizer.json takes half as long again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import cast

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from chairlift.errors import ModelLoadError
from chairlift.tokenization.pre_tokenizers import PRE_TOKENIZERS, PreTokenizerRule
from chairlift.tokenizer_source import GgufTokenizer

_SPACE_MARK = "▁"


class TokenType(IntEnum):
    """Values of ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_MERGEABLE = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)


def pre_tokenizer_rule(source: GgufTokenizer) -> PreTokenizerRule:
    """Rule of a byte-level vocabulary.

    Raises:
        ModelLoadError: The file names a pre-tokenizer that is not known here.
    """
    rule = PRE_TOKENIZERS.get(source.pre)
    if rule is None:
        raise ModelLoadError(
            f"{source.path}: tokenizer.ggml.pre is {source.pre!r}; supported are "
            f"{', '.join(sorted(PRE_TOKENIZERS))}"
        )
    return rule


def build_byte_level(source: GgufTokenizer) -> Tokenizer:
    """Build the tokenizer of a ``gpt2`` vocabulary, byte-level BPE.

    Raises:
        ModelLoadError: Unknown pre-tokenizer, or tokens and merges that do not fit together.
    """
    rule = pre_tokenizer_rule(source)
    vocabulary = _vocabulary(source)
    try:
        merges = cast(
            "list[tuple[str, str]]", [tuple(merge.split(" ", 1)) for merge in source.merges]
        )
        model = models.BPE(vocabulary, merges, ignore_merges=rule.ignore_merges)
    except Exception as error:  # the library raises nothing narrower
        raise ModelLoadError(f"{source.path}: broken tokenizer.ggml.merges: {error}") from error
    tokenizer = Tokenizer(model)
    if rule.normalize_nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    _add_whole_tokens(tokenizer, source)
    return tokenizer


def build_sentencepiece(source: GgufTokenizer) -> Tokenizer:
    """Build the tokenizer of a ``llama`` vocabulary, SentencePiece's BPE.

    Raises:
        ModelLoadError: The file has no scores.
    """
    if source.scores is None:
        raise ModelLoadError(
            f"{source.path}: no tokenizer.ggml.scores, which tokenizer.ggml.model 'llama' needs"
        )
    vocabulary = _vocabulary(source)
    scores = source.scores.tolist()
    pieces = {source.tokens[i]: scores[i] for i in ids_of_type(source, *_MERGEABLE)}
    model = models.BPE(
        vocabulary,
        sentencepiece_merges(pieces),
        unk_token=None if source.unk_token_id is None else source.tokens[source.unk_token_id],
        fuse_unk=True,
        byte_fallback="<0x00>" in vocabulary,
    )
    tokenizer = Tokenizer(model)
    mark_spaces = normalizers.Replace(" ", _SPACE_MARK)
    if source.add_space_prefix:
        # Runs on each stretch of text between special tokens, as llama.cpp does it and as the
        # tokenizer.json of these models says.
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE_MARK), mark_spaces])
    else:
        tokenizer.normalizer = mark_spaces
    _add_whole_tokens(tokenizer, source)
    return tokenizer


def sentencepiece_merges(pieces: Mapping[str, float]) -> list[tuple[str, str]]:
    """Recover merges, best first, from the scores of the pieces that merging can make.

    SentencePiece joins the neighbours whose joined piece has the highest score. Every way to cut
    a piece in two known ones is such a pair.
    """
    merges = [
        (-score, -cut, piece)
        for piece, score in pieces.items()
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    merges.sort()
    return [(piece[:-negative_cut], piece[-negative_cut:]) for _, negative_cut, piece in merges]


def ids_of_type(source: GgufTokenizer, *types: TokenType) -> list[int]:
    """Ids of the tokens of these types, ascending; without types in the file, all are normal."""
    if source.token_types is None:
        return list(range(len(source.tokens))) if TokenType.NORMAL in types else []
    ids: list[int] = np.flatnonzero(np.isin(source.token_types, types)).tolist()
    return ids


def _vocabulary(source: GgufTokenizer) -> dict[str, int]:
    vocabulary = dict(zip(source.tokens, range(len(source.tokens)), strict=True))
    if len(vocabulary) != len(source.tokens):
        i, token = next((i, t) for i, t in enumerate(source.tokens) if vocabulary[t] != i)
        raise ModelLoadError(
            f"{source.path}: token {token!r} has two ids, {i} and {vocabulary[token]}"
        )
    return vocabulary


def _add_whole_tokens(tokenizer: Tokenizer, source: GgufTokenizer) -> None:
    """Have special and user-defined tokens matched in text as a whole."""
    special = set(ids_of_type(source, TokenType.CONTROL, TokenType.UNKNOWN))
    # Old files call them normal tokens. Padding is left out: some files pad with a word.
    special |= {i for i in (source.bos_token_id, source.eos_token_id) if i is not None}
    user_defined = set(ids_of_type(source, TokenType.USER_DEFINED)) - special
    tokenizer.add_special_tokens(_added_tokens(source, sorted(special), is_special=True))
    tokenizer.add_tokens(_added_tokens(source, sorted(user_defined), is_special=False))


def _added_tokens(
    source: GgufTokenizer, ids: Iterable[int], *, is_special: bool
) -> list[AddedToken]:
    texts = (source.tokens[i] for i in ids)
    return [AddedToken(text, special=is_special, normalized=False) for text in texts if text]
