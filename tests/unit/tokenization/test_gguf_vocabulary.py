"""Tokenizers built from GGUF metadata give the ids of the tokenizers they were made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.unit.tokenization.samples import TEXTS, TEXTS_WITH_SPECIAL_TOKENS
from tests.unit.tokenization.tokenizer_builder import (
    CONTROL_TOKENS,
    Trained,
    sentencepiece_gguf,
    sentencepiece_json,
    sentencepiece_vocabulary,
    train_byte_level,
)
from tokenizers import Regex, normalizers
from tokenizers import pre_tokenizers as pre

from chairlift.errors import ModelLoadError
from chairlift.tokenization.gguf_vocabulary import sentencepiece_merges
from chairlift.tokenization.pre_tokenizers import PRE_TOKENIZERS
from chairlift.tokenization.tokenizer import Tokenizer, tokenizer_from_source

BYTES = pre.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre.ByteLevel(add_prefix_space=False)
ALL_TEXTS = (*TEXTS, *TEXTS_WITH_SPECIAL_TOKENS)


def splits(*patterns: str) -> list[pre.PreTokenizer]:
    return [pre.Split(Regex(pattern), "isolated") for pattern in patterns]


def of_transformers(name: str) -> pre.PreTokenizer:
    """The pattern that transformers has for this name in GGUF files."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    return pre.Sequence([*splits(GGUF_PRE_TOKENIZER_SPLITS[name]), BYTES])


def of_model(name: str) -> pre.PreTokenizer:
    """Pre-tokenizer in the tokenizer.json of a model that GGUF files give this name."""
    match name:
        case "gpt-2":
            return GPT2
        case "smollm" | "command-r":
            return pre.Sequence([pre.Digits(individual_digits=True), GPT2])
        case "deepseek-coder":
            cjk = "[一-龥ࠀ-一가-\ud7ff]+"
            first = splits("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", cjk)
            return pre.Sequence([*first, pre.Digits(individual_digits=True), BYTES])
        case "deepseek-v3":
            words = (
                r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
                "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
                "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
            )
            kana = "[一-龥\u3040-ゟ゠-ヿ]+"
            return pre.Sequence([*splits(r"\p{N}{1,3}", kana, words), BYTES])
        case _:
            return of_transformers(name)


@lru_cache
def trained(name: str) -> Trained:
    normalizer = normalizers.NFC() if PRE_TOKENIZERS[name].normalize_nfc else None
    options = {"ignore_merges": True} if PRE_TOKENIZERS[name].ignore_merges else {}
    return train_byte_level(of_model(name), name=name, normalizer=normalizer, **options)


def ids_of(tokenizer: Tokenizer, texts: Sequence[str] = ALL_TEXTS) -> dict[str, list[int]]:
    return {text: tokenizer.encode(text, add_special_tokens=False) for text in texts}


MODELS = ("gpt-2", "smollm", "command-r", "deepseek-coder", "deepseek-v3")
SAME_AS_TRANSFORMERS = ("llama-bpe", "dbrx", "qwen2", "deepseek-r1-qwen", "tekken", "gpt-4o")


@pytest.mark.parametrize("name", [*MODELS, *SAME_AS_TRANSFORMERS])
def test_byte_level_ids_equal_those_of_the_original_tokenizer(name: str) -> None:
    source = trained(name)
    expected = {t: source.backend.encode(t, add_special_tokens=False).ids for t in ALL_TEXTS}
    assert ids_of(tokenizer_from_source(source.gguf)) == expected


def words_of(cuts: pre.PreTokenizer) -> list[list[str]]:
    return [[word for word, _ in cuts.pre_tokenize_str(text)] for text in TEXTS]


@pytest.mark.parametrize("name", MODELS)
def test_words_are_cut_as_by_the_original_tokenizer(name: str) -> None:
    ours = pre.Sequence([*splits(*PRE_TOKENIZERS[name].splits), BYTES])
    assert words_of(ours) == words_of(of_model(name))


def test_words_are_cut_as_by_transformers_wherever_it_knows_the_name() -> None:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    names = sorted(PRE_TOKENIZERS.keys() & GGUF_PRE_TOKENIZER_SPLITS.keys())
    assert len(names) > 8
    for name in names:
        ours = pre.Sequence([*splits(*PRE_TOKENIZERS[name].splits), BYTES])
        assert words_of(ours) == words_of(of_transformers(name)), name


@pytest.mark.parametrize("name", ["smollm", "qwen2"])
def test_byte_level_ids_equal_those_of_transformers_from_the_folder(
    name: str, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    source = trained(name)
    files = source.write(tmp_path, eos_token="<|im_end|>")
    reference = AutoTokenizer.from_pretrained(tmp_path)
    expected = {text: reference.encode(text) for text in ALL_TEXTS}
    assert ids_of(tokenizer_from_source(source.gguf)) == expected
    assert ids_of(tokenizer_from_source(files)) == expected


@pytest.mark.parametrize("name", ["seed-coder", "deepseek-llm"])
def test_every_text_comes_back_from_patterns_that_no_reference_here_knows(name: str) -> None:
    source = replace(trained("gpt-2").gguf, pre=name)
    tokenizer = tokenizer_from_source(source)
    for text, ids in ids_of(tokenizer).items():
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_deepseek_llm_cuts_before_letters_with_case_and_at_digits_and_line_breaks() -> None:
    words = pre.Sequence(splits(*PRE_TOKENIZERS["deepseek-llm"].splits))
    cut = [word for word, _ in words.pre_tokenize_str("Ab cd12\n\nΣίσυφος 中文ab, (x)  ")]
    assert cut == [
        *[
            "Ab",
            " cd",
            "1",
            "2",
            "\n",
            "\n",
            "Σίσυφος",
            " ",
            "中文",
            "ab",
            ",",
            " (",
            "x",
            ")",
            "  ",
        ]
    ]


def test_a_word_of_the_vocabulary_needs_no_merges_where_the_rule_says_so() -> None:
    source = trained("llama-bpe").gguf
    whole = replace(source, tokens=[*source.tokens, "zyxw"], token_types=None)
    assert tokenizer_from_source(whole).encode("zyxw", add_special_tokens=False) == [
        len(source.tokens)
    ]
    strict = tokenizer_from_source(replace(whole, pre="gpt-2"))
    assert strict.encode("zyxw", add_special_tokens=False) != [len(source.tokens)]


@pytest.mark.parametrize(
    ("name", "add_bos", "add_eos", "bos", "eos"),
    [
        ("smollm", None, None, False, False),
        ("llama-bpe", None, None, True, False),
        ("tekken", None, None, True, False),
        ("llama-bpe", False, True, False, True),
        ("smollm", True, True, True, True),
    ],
)
def test_bos_and_eos_are_added_as_the_file_or_else_its_kind_says(
    name: str, add_bos: bool | None, add_eos: bool | None, bos: bool, eos: bool
) -> None:
    source = replace(trained("smollm").gguf, pre=name, add_bos=add_bos, add_eos=add_eos)
    tokenizer = tokenizer_from_source(source)
    plain = tokenizer.encode("Hello", add_special_tokens=False)
    expected = [*[source.bos_token_id] * bos, *plain, *[source.eos_token_id] * eos]
    assert tokenizer.encode("Hello", add_special_tokens=True) == expected


def test_control_tokens_are_special_and_user_defined_ones_are_text() -> None:
    tokenizer = tokenizer_from_source(trained("smollm").gguf)
    ids = tokenizer.encode("<|im_start|><think>    x", add_special_tokens=False)
    assert [tokenizer.token_bytes(i) for i in ids] == [b"<|im_start|>", b"<think>", b"    ", b"x"]
    assert [tokenizer.is_special(i) for i in ids] == [True, False, False, False]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>    x"


def test_the_end_token_is_special_even_if_the_file_calls_it_normal() -> None:
    source = replace(trained("smollm").gguf, token_types=None)
    tokenizer = tokenizer_from_source(source)
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [source.eos_token_id]
    assert tokenizer.eos_token_ids == (source.eos_token_id,)


def test_special_tokens_go_by_their_roles() -> None:
    source = replace(trained("smollm").gguf, pad_token_id=5)
    tokenizer = tokenizer_from_source(source)
    assert tokenizer.special_tokens == {
        "bos_token": CONTROL_TOKENS[0],
        "eos_token": CONTROL_TOKENS[2],
        "pad_token": source.tokens[5],
    }
    assert not tokenizer.is_special(5)


def naive_sentencepiece(text: str, scores: dict[str, float], ids: dict[str, int]) -> list[int]:
    """SentencePiece's BPE as published: join the best-scored neighbours, leftmost first."""
    pieces = list(text)
    while True:
        pairs = [a + b for a, b in pairwise(pieces)]
        joinable = [(-scores[p], i) for i, p in enumerate(pairs) if p in scores]
        if not joinable:
            break
        _, at = min(joinable)
        pieces[at : at + 2] = [pairs[at]]
    known = [[ids[p]] if p in ids else [ids[f"<0x{b:02X}>"] for b in p.encode()] for p in pieces]
    return [i for group in known for i in group]


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_ids_equal_those_of_the_published_algorithm(text: str) -> None:
    tokens, scores, _ = sentencepiece_vocabulary()
    pieces = dict(zip(tokens[259:], scores[259:], strict=True))
    marked = ("▁" + text.replace(" ", "▁")) if text else ""
    expected = naive_sentencepiece(marked, pieces, {t: i for i, t in enumerate(tokens)})
    tokenizer = tokenizer_from_source(sentencepiece_gguf())
    assert tokenizer.encode(text, add_special_tokens=False) == expected
    assert tokenizer.decode(expected, skip_special_tokens=False) == text


def test_sentencepiece_ids_equal_those_of_a_llama_2_tokenizer_json() -> None:
    from transformers.tokenization_utils_base import generate_merges

    tokens, scores, _ = sentencepiece_vocabulary()
    pieces = dict(zip(tokens[259:], scores[259:], strict=True))
    vocabulary = {t: i for i, t in enumerate(tokens)}
    merges = generate_merges({t: vocabulary[t] for t in pieces}, pieces)
    reference = sentencepiece_json(tokens, merges)
    texts = (*TEXTS, "<s>Hi</s> there</s>", "a<s> b")
    expected = {text: reference.encode(text, add_special_tokens=False).ids for text in texts}
    assert ids_of(tokenizer_from_source(sentencepiece_gguf()), texts) == expected


def test_sentencepiece_adds_bos_unless_told_otherwise() -> None:
    tokenizer = tokenizer_from_source(sentencepiece_gguf())
    assert tokenizer.encode("a", add_special_tokens=True)[0] == 1
    tokenizer = tokenizer_from_source(sentencepiece_gguf(add_bos=False))
    assert tokenizer.encode("a", add_special_tokens=True)[0] != 1


def test_without_the_space_prefix_a_text_starts_as_it_is() -> None:
    tokenizer = tokenizer_from_source(sentencepiece_gguf(add_space_prefix=False))
    ids = tokenizer.encode(" the", add_special_tokens=False)
    assert [tokenizer.token_bytes(i) for i in ids] == [b" the"]
    assert tokenizer.decode(ids, skip_special_tokens=False) == " the"


def test_sentencepiece_merges_come_best_score_first() -> None:
    pieces = {"a": -9.0, "b": -9.0, "ab": -2.0, "aba": -1.0, "ba": -3.0}
    assert sentencepiece_merges(pieces) == [("ab", "a"), ("a", "ba"), ("a", "b"), ("b", "a")]


def test_an_unknown_pre_tokenizer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelLoadError, match=r"pre is 'novel'; supported are .*qwen2.*smollm"):
        tokenizer_from_source(replace(trained("smollm").gguf, pre="novel"))


def test_an_unknown_kind_of_vocabulary_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelLoadError, match=r"model is 'bert'; supported are gpt2, llama"):
        tokenizer_from_source(replace(trained("smollm").gguf, model="bert"))


def test_a_token_with_two_ids_is_refused() -> None:
    source = trained("smollm").gguf
    twice = replace(source, tokens=[*source.tokens, source.tokens[7]], token_types=None)
    with pytest.raises(ModelLoadError, match=f"has two ids, 7 and {len(source.tokens)}"):
        tokenizer_from_source(twice)


@pytest.mark.parametrize("merge", ["one", "zq qz", ""])
def test_a_merge_that_is_not_two_tokens_is_refused(merge: str) -> None:
    source = trained("smollm").gguf
    with pytest.raises(ModelLoadError, match=r"broken tokenizer\.ggml\.merges"):
        tokenizer_from_source(replace(source, merges=[*source.merges, merge]))


def test_merges_of_one_and_of_three_words_do_not_make_up_for_each_other() -> None:
    source = trained("smollm").gguf
    first, second = source.tokens[300], source.tokens[301]
    merges = [*source.merges, f"{first} {second} {first}", second]
    with pytest.raises(ModelLoadError, match=r"broken tokenizer\.ggml\.merges"):
        tokenizer_from_source(replace(source, merges=merges))


def test_a_sentencepiece_vocabulary_without_scores_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.ggml\.scores"):
        tokenizer_from_source(sentencepiece_gguf(scores=None))


def test_unused_tokens_are_not_special() -> None:
    source = sentencepiece_gguf()
    types = np.array(source.token_types)
    types[300] = 5
    assert not tokenizer_from_source(replace(source, token_types=types)).is_special(300)
