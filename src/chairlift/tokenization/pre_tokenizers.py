"""How byte-level BPE vocabularies in GGUF files cut text into words before merging.

A GGUF file does not carry its tokenizer's rules, only a name for them in ``tokenizer.ggml.pre``.
This table gives the rules of the names that models of the supported architectures use. Patterns
are in the syntax of Oniguruma, the engine of the ``tokenizers`` library. They are part of each
vocabulary: its merges were learned on words cut in exactly this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PreTokenizerRule:
    """The pre-tokenizer of one family of byte-level vocabularies.

    Attributes:
        splits: Patterns, applied one after the other; each match becomes a word of its own, and
            so does what lies between matches.
        normalize_nfc: Text is brought to Unicode normal form C first.
        ignore_merges: A word that is itself in the vocabulary is taken as it is.
        add_bos: A text starts with BOS unless the file says otherwise.
    """

    splits: tuple[str, ...]
    normalize_nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


_DIGIT = r"\p{N}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN2 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_SEED = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
)
# Words change at a lower-case letter followed by an upper-case one.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_LINE_BREAK = r"[\r\n]"
_CJK = r"[一-龥ࠀ-一가-\x{D7FF}]+"
# The letters with case, as the vocabulary's makers listed them. Ends of ranges that Unicode
# normalisation would turn into another character are written as numbers.
_CASED_LETTERS = (
    r"A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    r"Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼ"
    r"ℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿ"
    r"ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_LLM = (
    _LINE_BREAK,
    rf"\s?[{_CASED_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+",
    r"\s+$",
    _CJK,
    _DIGIT,
)
_DEEPSEEK_CODER = (_LINE_BREAK, r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _DIGIT)
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥\x{3040}-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACES}",
)

_FAMILIES: tuple[tuple[tuple[str, ...], PreTokenizerRule], ...] = (
    (
        (
            "default",
            "gpt-2",
            "phi-2",
            "exaone4",
            "gigachat",
            "granite-docling",
            "jais",
            "mellum",
            "mpt",
            "olmo",
            "trillion",
        ),
        PreTokenizerRule((_GPT2,)),
    ),
    (
        ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"),
        PreTokenizerRule((_DIGIT, _GPT2)),
    ),
    (("command-r",), PreTokenizerRule((_DIGIT, _GPT2), normalize_nfc=True)),
    (
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"),
        PreTokenizerRule((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    (("dbrx", "smaug-bpe"), PreTokenizerRule((_LLAMA3,))),
    (
        ("qwen2", "deepseek-r1-qwen", "kormo", "megrez"),
        PreTokenizerRule((_QWEN2,), normalize_nfc=True),
    ),
    (("tekken",), PreTokenizerRule((_TEKKEN,), ignore_merges=True, add_bos=True)),
    (("gpt-4o", "llama4"), PreTokenizerRule((_GPT4O,))),
    (("deepseek-llm",), PreTokenizerRule(_DEEPSEEK_LLM)),
    (("deepseek-coder",), PreTokenizerRule(_DEEPSEEK_CODER)),
    (("deepseek-v3", "hunyuan-dense"), PreTokenizerRule(_DEEPSEEK_V3)),
    (("seed-coder",), PreTokenizerRule((_SEED,))),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizerRule] = {
    name: rule for names, rule in _FAMILIES for name in names
}
"""Rule by the name that ``tokenizer.ggml.pre`` gives it."""
