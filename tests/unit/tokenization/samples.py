"""Texts that tokenizers disagree on when one of them is slightly wrong."""

from __future__ import annotations

TEXTS: tuple[str, ...] = (
    "",
    " ",
    "   ",
    "\n",
    "\n\n\n",
    "\t\tindented\twith tabs\n",
    "Hello, world!",
    " a leading space",
    "  two leading spaces, two trailing  ",
    "several     spaces   inside,\r\nCRLF\rand a bare CR",
    "line one  \n  line two\n\n   \n\tline five",
    "I'm sure they'll say it's what we've said; you're right, I'd go. I'M SURE THEY'LL",
    "0 1 12 123 1234 12345678901 3.14159 1,000,000 2024-11-29T18:00:00Z 0x1F",
    "half ½, squared x², Roman Ⅷ, Arabic ٣٤٥, Devanagari १२३",
    "def f(x: int) -> int:\n    return x**2  # squared\n\n\nprint(f'{f(3)!r:>8}')\n",
    'for (int i = 0; i < n; ++i) { a[i] += b[i] * 2.5f; }\n/* ... */ "quoted\\n"',
    "camelCaseWords and PascalCase, snake_case_words, SCREAMING_CASE, kebab-case",
    "https://example.org/a/b?c=d&e=f#g user@example.org C:\\path\\to\\file",
    "!!! ??? ... --- ___ *** ((())) [[]] {{}} <<>> $$$ ### @@@ %%% ^^^ &&& ~~~ ```",
    "Ünïcödé façade naïve Straße ŁÓDŹ Ελληνικά ΣΊΣΥΦΟΣ Кириллица ѐёђ Հայերեն ქართული",
    "combining: e\u0301 a\u0308 n\u0303 \u1e69 s\u0323\u0307 Z\u0351\u036b\u0343",
    "RTL: שלום עולם, مرحبا بالعالم! \u202bembedded\u202c",
    "中文测试，没有空格。日本語のテスト、カタカナ。한국어 시험입니다. 𠀋𠮷",
    "ไทยไม่มีช่องว่าง हिन्दी देवनागरी বাংলা தமிழ்",
    "emoji 🙂 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇨🇭 ⛷️ and \u2764\ufe0f",
    "odd spaces:\u00a0nbsp\u2003em\u200bzero\u3000ideographic\u2028line\u2029para\x0bvt\x0cff\x85x",
    "controls \x00\x01\x07\x1b[0m\x7f \ufeff bom \ufffd \ue000 private \U0010fffe",
    "a" * 200,
    "ab" * 60 + " " * 40 + "." * 30,
    "The quick brown fox jumps over the lazy dog. " * 4,
    "Straßenbahnhaltestelle Donaudampfschifffahrtsgesellschaft antidisestablishmentarianism",
    "x = {'a': [1, 2, 3], \"b\": (4.5, None, True)}; assert x['a'][0] == 1",
    "| col | val |\n|-----|----:|\n| a   |  10 |\n\n- [ ] todo\n1. one\n\n> quote\n",
)

TEXTS_WITH_SPECIAL_TOKENS: tuple[str, ...] = (
    "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|>",
    "<|im_end|><|im_end|> <|im_start|>",
    "text with <|im_end|> inside, and a broken <|im_end |> or <|im_en",
)
