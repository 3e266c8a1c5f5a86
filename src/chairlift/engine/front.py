"""What the front knows of a model: its text side. Weights are none of its business."""

from __future__ import annotations

from dataclasses import dataclass

from chairlift.errors import RequestError
from chairlift.models.loaded_model import LoadedModel
from chairlift.tokenization.chat_template import ChatTemplate, chat_template_from_source
from chairlift.tokenization.tokenizer import Tokenizer, tokenizer_from_source


@dataclass(frozen=True, slots=True)
class Front:
    """Text side of a model.

    Attributes:
        chat_template: ``None`` if the model has none.
        eos_token_ids: Ids that end a text, from the model's generation settings and tokenizer.
    """

    model_name: str
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    eos_token_ids: tuple[int, ...]

    def warm_up(self) -> None:
        """Do once what only the first chat would pay for: imports, compiling the template."""
        if self.chat_template is None:
            return
        try:
            text = self.chat_template.render([{"role": "user", "content": "Hello!"}])
        except RequestError:  # a template may want other messages; it is compiled all the same
            return
        self.tokenizer.encode(text, add_special_tokens=False)


def build_front(model: LoadedModel) -> Front:
    """Build the tokenizer and the chat template of a model.

    Raises:
        ModelLoadError: Its tokenizer is broken or of a kind that is not supported.
    """
    tokenizer = tokenizer_from_source(model.tokenizer_source)
    return Front(
        model_name=model.name,
        tokenizer=tokenizer,
        chat_template=chat_template_from_source(model.tokenizer_source, tokenizer.special_tokens),
        eos_token_ids=tuple(
            dict.fromkeys((*model.generation.eos_token_ids, *tokenizer.eos_token_ids))
        ),
    )
