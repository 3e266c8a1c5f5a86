"""Build a tokenizer from a GGUF file's metadata.

The file holds the vocabulary, merges or scores, and the kind of each token; the rules for cutting
text come from :mod:`chairlift.tokenization.pre_tokenizers`. The result gives the ids that the
model's original tokenizer gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

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


_MERGEABLE = frozenset({TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED})


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
    merges = _split_merges(source)
    try:
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
    types = token_types(source)
    model = models.BPE(
        _vocabulary(source),
        sentencepiece_merges(source.tokens, source.scores.tolist(), types),
        unk_token=_token_text(source, source.unk_token_id),
        fuse_unk=True,
        byte_fallback=TokenType.BYTE in types,
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


def sentencepiece_merges(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]
) -> list[tuple[str, str]]:
    """Recover merges from SentencePiece scores, best first.

    SentencePiece joins the neighbours whose joined piece has the highest score. Every way to cut
    a piece in two known ones is such a pair.
    """
    known = {
        token for token, kind in zip(tokens, types, strict=True) if kind in _MERGEABLE and token
    }
    merges = [
        (-score, -cut, token)
        for token, score in zip(tokens, scores, strict=True)
        if token in known
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    merges.sort()
    return [(token[:-negative_cut], token[-negative_cut:]) for _, negative_cut, token in merges]


def token_types(source: GgufTokenizer) -> list[int]:
    """Type of each token; all normal when the file has none."""
    if source.token_types is None:
        return [TokenType.NORMAL] * len(source.tokens)
    types: list[int] = source.token_types.tolist()
    return types


def _vocabulary(source: GgufTokenizer) -> dict[str, int]:
    vocabulary = {token: i for i, token in enumerate(source.tokens)}
    if len(vocabulary) != len(source.tokens):
        i, token = next((i, t) for i, t in enumerate(source.tokens) if vocabulary[t] != i)
        raise ModelLoadError(
            f"{source.path}: token {token!r} has two ids, {i} and {vocabulary[token]}"
        )
    return vocabulary


def _split_merges(source: GgufTokenizer) -> list[tuple[str, str]]:
    # The left part is never empty, so a space that stands first belongs to it.
    cuts = [(merge, merge.find(" ", 1)) for merge in source.merges]
    pairs = [(merge[:cut], merge[cut + 1 :]) for merge, cut in cuts if cut > 0]
    if len(pairs) != len(cuts):
        broken = next(merge for merge, cut in cuts if cut <= 0)
        raise ModelLoadError(
            f"{source.path}: tokenizer.ggml.merges has {broken!r}, which is not two tokens with a "
            "space between them"
        )
    return pairs


def _add_whole_tokens(tokenizer: Tokenizer, source: GgufTokenizer) -> None:
    """Have special and user-defined tokens matched in text as a whole."""
    special = sorted(_special_ids(source))
    tokenizer.add_special_tokens(_added_tokens(source, special, is_special=True))
    user_defined = (
        i for i, kind in enumerate(token_types(source)) if kind == TokenType.USER_DEFINED
    )
    others = [i for i in user_defined if i not in set(special)]
    tokenizer.add_tokens(_added_tokens(source, others, is_special=False))


def _special_ids(source: GgufTokenizer) -> set[int]:
    types = token_types(source)
    special = {i for i, kind in enumerate(types) if kind in (TokenType.CONTROL, TokenType.UNKNOWN)}
    # Old files call them normal tokens. Padding is left out: some files pad with a word.
    return special | {i for i in (source.bos_token_id, source.eos_token_id) if i is not None}


def _added_tokens(
    source: GgufTokenizer, ids: Iterable[int], *, is_special: bool
) -> list[AddedToken]:
    texts = (source.tokens[i] for i in ids)
    return [AddedToken(text, special=is_special, normalized=False) for text in texts if text]


def _token_text(source: GgufTokenizer, token_id: int | None) -> str | None:
    return None if token_id is None else source.tokens[token_id]
