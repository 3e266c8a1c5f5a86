"""Text to tokens and back: tokenizer, chat template, incremental detokenizer, stop strings.

Knows nothing about the engine or the model's weights. Import what you need from its modules:
``tokenizer``, ``chat_template``, ``detokenizer``, ``stop_strings``.
"""
