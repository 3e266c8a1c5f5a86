"""Text to token ids and back, over the ``tokenizers`` library.

Text is encoded with special tokens recognised: where a prompt literally holds ``<|im_end|>``, it
becomes that one token, as in transformers. A server that must keep users from writing control
tokens has to filter its prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from chairlift.errors import InvalidParameterError, ModelLoadError
from chairlift.tokenization.gguf_vocabulary import (
    build_byte_level,
    build_sentencepiece,
    pre_tokenizer_rule,
)
from chairlift.tokenization.token_pieces import (
    PieceKind,
    PieceRule,
    decode_bytes,
    piece_bytes,
    piece_rule,
)
from chairlift.tokenizer_source import GgufTokenizer, TokenizerFiles, TokenizerSource

_GGUF_MODELS = ("gpt2", "llama")


class Tokenizer:
    """One model's tokenizer; does not change, so threads may share it.

    Attributes:
        vocab_size: Number of token ids; the model's own vocabulary can be padded to more.
        bos_token_id: None when the model has none.
        eos_token_ids: The token that ends a text, if the tokenizer names one. A model's generation
            settings can name more.
        special_tokens: Text by role (``bos_token``, ``eos_token``, ``pad_token``, ``unk_token``)
            of those the model names; what chat templates call them.
        rule: How the tokens spell bytes.
    """

    def __init__(
        self,
        backend: Backend,
        rule: PieceRule,
        *,
        special_tokens: Mapping[str, str],
        affixes: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> None:
        """Wrap ``backend``.

        Args:
            affixes: Ids to put before and after a text that is encoded with special tokens;
                None leaves it to the backend's own post-processor.
        """
        self.rule = rule
        self.special_tokens = special_tokens
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.bos_token_id = _token_id(backend, special_tokens.get("bos_token"))
        eos_token_id = _token_id(backend, special_tokens.get("eos_token"))
        self.eos_token_ids = () if eos_token_id is None else (eos_token_id,)
        self._backend = backend
        self._affixes = affixes
        added = backend.get_added_tokens_decoder()
        self._added_ids = frozenset(added)
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        self._bytes: dict[int, bytes] = {}
        self._complete_texts = {skip: _CompleteTexts(self, skip) for skip in (False, True)}

    @cached_property
    def max_token_bytes(self) -> int:
        """Bytes of the longest token; found on first use, which takes some 70 ms."""
        texts = self._backend.get_vocab(with_added_tokens=True)
        added = [len(self.token_bytes(i)) for i in self._added_ids]
        if self.rule.kind is PieceKind.BYTE_LEVEL:
            return max(*map(len, texts), *added, 1)  # one character stands for one byte
        return max(*(len(piece_bytes(self.rule.kind, t, is_added=False)) for t in texts), 1)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Tokenise ``text``.

        Args:
            add_special_tokens: Put BOS or EOS around it where the model wants that. Not for
                rendered chat templates, which hold their own.

        Raises:
            InvalidParameterError: ``text`` holds a lone surrogate, so it is not Unicode text.
        """
        use_backend = add_special_tokens and self._affixes is None
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=use_backend).ids
        except TypeError as error:
            raise _not_unicode(text) from error
        if add_special_tokens and self._affixes is not None:
            prefix, suffix = self._affixes
            return [*prefix, *ids, *suffix]
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Turn ids into text; bytes that are not UTF-8 become U+FFFD, unknown ids nothing."""
        if self.rule.kind is PieceKind.OTHER:
            return self.decode_together(token_ids, skip_special_tokens=skip_special_tokens)
        skipped = self._special_ids if skip_special_tokens else frozenset()
        data = b"".join([self.token_bytes(i) for i in token_ids if i not in skipped])
        text, _ = decode_bytes(self.rule.kind, data, final=True)
        if self.rule.strips_leading_space and text.startswith(" "):
            return text[1:]
        return text

    def decode_together(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Decode with the backend's own decoder, for vocabularies of kind ``OTHER``."""
        text: str = self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes the token stands for: part of a character, in UTF-8, or several of them.

        Empty for ids that the tokenizer does not know, which a padded vocabulary can yield.
        """
        data = self._bytes.get(token_id)
        if data is None:
            text = self._backend.id_to_token(token_id) if 0 <= token_id < 2**32 else None
            is_added = token_id in self._added_ids
            data = piece_bytes(self.rule.kind, text or "", is_added=is_added)
            self._bytes[token_id] = data
        return data

    def complete_texts(self, *, skip_special_tokens: bool) -> Mapping[int, str | None]:
        """Text by token id, for decoding one token at a time; made as it is asked for.

        None for tokens whose text depends on their neighbours: parts of a character, and all
        tokens of a vocabulary of kind ``OTHER``. Empty for special tokens that are skipped.
        """
        return self._complete_texts[skip_special_tokens]

    def is_special(self, token_id: int) -> bool:
        """Whether the token controls the model (BOS, end of turn, ...) and is not text."""
        return token_id in self._special_ids


class _CompleteTexts(dict[int, "str | None"]):
    """Fills itself; a plain dictionary's look-up is the fastest way from id to text."""

    def __init__(self, tokenizer: Tokenizer, skips_special: bool) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._skips_special = skips_special

    def __missing__(self, token_id: int) -> str | None:
        text = self._text(token_id)
        self[token_id] = text
        return text

    def _text(self, token_id: int) -> str | None:
        if self._tokenizer.rule.kind is PieceKind.OTHER:
            return None
        if self._skips_special and self._tokenizer.is_special(token_id):
            return ""
        try:
            return self._tokenizer.token_bytes(token_id).decode()
        except UnicodeDecodeError:
            return None


def tokenizer_from_source(source: TokenizerSource) -> Tokenizer:
    """Build the tokenizer that a model's files describe.

    Raises:
        ModelLoadError: The files are broken, or describe a tokenizer that is not supported.
    """
    if isinstance(source, TokenizerFiles):
        return _from_files(source)
    return _from_gguf(source)


def _from_files(source: TokenizerFiles) -> Tokenizer:
    """Take tokenizer.json as it is; its own post-processor decides about BOS and EOS.

    That is what transformers 5 does: where there is a tokenizer.json, it ignores ``add_bos_token``
    and ``add_eos_token`` of tokenizer_config.json.
    """
    special_tokens = {
        role: text
        for role in ("bos_token", "eos_token", "pad_token", "unk_token")
        if (text := getattr(source, role)) is not None
    }
    try:
        backend = Backend.from_file(str(source.tokenizer_json))
        _mark_special(backend, source, special_tokens.values())
    except Exception as error:  # the library raises nothing narrower
        raise ModelLoadError(
            f"{source.tokenizer_json} is not a tokenizer that can be read: {error}"
        ) from error
    # Limits and padding in the file are settings of training, not of the vocabulary.
    backend.no_truncation()
    backend.no_padding()
    decoder = backend.decoder
    rule = piece_rule(None if decoder is None else json.loads(decoder.__getstate__()))
    return Tokenizer(backend, rule, special_tokens=special_tokens)


def _mark_special(backend: Backend, source: TokenizerFiles, named: Iterable[str]) -> None:
    """Add the tokens that only ``tokenizer_config.json`` marks as special.

    Names of tokens that the vocabulary lacks are left out: the model has no row for them.
    """
    known = backend.get_added_tokens_decoder()
    listed = source.config.get("added_tokens_decoder")
    tokens = [
        _added_token(entry)
        for token_id, entry in (listed.items() if isinstance(listed, dict) else ())
        if isinstance(entry, dict) and str(_token_id(backend, entry.get("content"))) == token_id
    ]
    added = {token.content for token in known.values()} | {token.content for token in tokens}
    tokens += [
        AddedToken(text, special=True, normalized=False)
        for text in named
        if text not in added and backend.token_to_id(text) is not None
    ]
    for token in tokens:
        if token.special:
            backend.add_special_tokens([token])
        else:
            backend.add_tokens([token])


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(entry["content"], **{flag: bool(entry.get(flag)) for flag in flags})


def _from_gguf(source: GgufTokenizer) -> Tokenizer:
    if source.model == "gpt2":
        backend = build_byte_level(source)
        rule = PieceRule(PieceKind.BYTE_LEVEL)
        adds_bos = pre_tokenizer_rule(source).add_bos
    elif source.model == "llama":
        backend = build_sentencepiece(source)
        rule = PieceRule(PieceKind.SENTENCEPIECE, source.add_space_prefix)
        adds_bos = True
    else:
        raise ModelLoadError(
            f"{source.path}: tokenizer.ggml.model is {source.model!r}; supported are "
            f"{', '.join(_GGUF_MODELS)}"
        )
    ids = {
        "bos_token": source.bos_token_id,
        "eos_token": source.eos_token_id,
        "pad_token": source.pad_token_id,
        "unk_token": source.unk_token_id,
    }
    return Tokenizer(
        backend,
        rule,
        special_tokens={role: source.tokens[i] for role, i in ids.items() if i is not None},
        affixes=_affixes(
            source.bos_token_id
            if (adds_bos if source.add_bos is None else source.add_bos)
            else None,
            source.eos_token_id if source.add_eos else None,
        ),
    )


def _affixes(
    prefix_id: int | None, suffix_id: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (
        () if prefix_id is None else (prefix_id,),
        () if suffix_id is None else (suffix_id,),
    )


def _token_id(backend: Backend, text: str | None) -> int | None:
    if text is None:
        return None
    token_id: int | None = backend.token_to_id(text)
    return token_id


def _not_unicode(text: str) -> InvalidParameterError:
    position = next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), 0)
    return InvalidParameterError(
        f"text must be Unicode, got the lone surrogate U+{ord(text[position]):04X} at character "
        f"{position}; send such characters as one code point or leave them out",
        param="prompt",
    )
