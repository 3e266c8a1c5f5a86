"""``chairlift chat``: a conversation in the terminal, or one turn per line of a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

import typer

from chairlift.cli.arguments import ModelArgument
from chairlift.cli.options import engine_options, sampling_options
from chairlift.cli.progress import ensure_fetched
from chairlift.config import DEFAULT_MODEL, EngineConfig
from chairlift.errors import RequestError
from chairlift.sampling_params import SamplingParams

Messages: TypeAlias = list[dict[str, str]]
Answer: TypeAlias = Callable[[Messages], Generator[str, None, None]]

PROMPT, CONTINUATION_PROMPT, BLOCK_MARK = "> ", "| ", '"""'
HELP = """\
/exit     leave (so does Ctrl-D)
/clear    forget the conversation so far
/help     show this
Ctrl-C stops an answer. A line that ends in \\ goes on in the next one; \"\"\" begins and ends a
message of several lines."""


@engine_options()
@sampling_options(
    defaults={"max_tokens": None, "temperature": 0.7},
    skip=["n", "logprobs", "prompt_logprobs", "ignore_eos", "skip_special_tokens"],
)
def chat(
    *,
    model: ModelArgument = DEFAULT_MODEL,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="System message; default: the model's own.")
    ] = None,
    sampling: SamplingParams,
    config: Callable[[str], EngineConfig],
) -> None:
    """Talk to MODEL in the terminal.

    Answers appear as they are made; Ctrl-C stops one. /help lists what else can be typed. In a
    pipe, each line of standard input is a message, and answers go to standard output.

    Examples:

    \b
      chairlift chat
      chairlift chat ./model.gguf --system "Answer in one sentence." --temperature 0
      echo "Why is the sky blue?" | chairlift chat
    """
    engine = config(model)
    ensure_fetched(model)
    from chairlift.engine.llm import LLM

    with LLM.from_config(engine) as llm:

        def answer(messages: Messages) -> Generator[str, None, None]:
            for output in llm.stream_chat(messages, sampling):
                yield from (choice.text for choice in output.choices)

        start: Messages = [] if system is None else [{"role": "system", "content": system}]
        conversation = Conversation(answer, start)
        (talk if sys.stdin.isatty() else answer_lines)(conversation)


@dataclass(slots=True)
class Conversation:
    """The messages so far, and who answers them.

    Attributes:
        answer: Makes the pieces of the next answer out of all messages; closing the generator
            stops it.
        start: Messages that stay when the conversation is cleared.
    """

    answer: Answer
    start: Messages = field(default_factory=list)
    messages: Messages = field(init=False)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything but the start."""
        self.messages = list(self.start)

    def say(self, text: str) -> None:
        """Add a message of the user and write the answer to standard output as it comes.

        Ctrl-C ends the answer; what there is of it stays part of the conversation. A message that
        is refused does not.

        Raises:
            RequestError: The message cannot be answered, for example because the conversation has
                outgrown the model's context.
        """
        message = {"role": "user", "content": text}
        said: list[str] = []
        try:
            with closing(self.answer([*self.messages, message])) as pieces:
                for piece in pieces:
                    said.append(piece)
                    print(piece, end="", flush=True)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
        finally:
            print(flush=True)
        self.messages += [message, {"role": "assistant", "content": "".join(said)}]


def answer_lines(conversation: Conversation) -> None:
    """Answer each line of standard input that is not blank."""
    for line in sys.stdin:
        if line.strip():
            conversation.say(line.rstrip("\r\n"))


def talk(conversation: Conversation) -> None:
    """Read messages and commands from the terminal until the user leaves."""
    import readline  # noqa: F401  (input() then edits lines and remembers them)

    print("Type a message, or /help.", file=sys.stderr)
    while (text := read_message()) is not None:
        if text in ("/exit", "/quit"):
            return
        if text == "/clear":
            conversation.clear()
        elif text == "/help":
            print(HELP, file=sys.stderr)
        elif text.strip():
            try:
                conversation.say(text)
            except RequestError as error:
                print(f"{error}\n/clear begins anew.", file=sys.stderr)


def read_message() -> str | None:
    """Read one message, which may have several lines; None at the end of input."""
    while True:
        try:
            line = input(PROMPT)
            if line.startswith(BLOCK_MARK):
                return _read_block(line.removeprefix(BLOCK_MARK))
            lines = [line]
            while lines[-1].endswith("\\"):
                lines[-1] = lines[-1].removesuffix("\\")
                lines.append(input(CONTINUATION_PROMPT))
            return "\n".join(lines)
        except EOFError:
            print(file=sys.stderr)
            return None
        except KeyboardInterrupt:
            print("\n/exit or Ctrl-D leaves.", file=sys.stderr)


def _read_block(first: str) -> str:
    lines = [first]
    while not lines[-1].endswith(BLOCK_MARK):
        lines.append(input(CONTINUATION_PROMPT))
    lines[-1] = lines[-1].removesuffix(BLOCK_MARK)
    return "\n".join(lines).strip("\n")
