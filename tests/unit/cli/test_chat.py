"""The conversation of ``chairlift chat``: turns, commands, lines of a pipe, Ctrl-C."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Callable, Generator

import pytest

from chairlift.cli.chat import Conversation, Messages, answer_lines, read_message, talk
from chairlift.errors import ContextLengthError

Typed = str | type[BaseException]


class Terminal(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let ``input()`` give lines, or raise, in turn; then the input ends."""

    def arrange(*lines: Typed) -> None:
        rest = iter(lines)

        def read_line(prompt: str = "") -> str:
            line = next(rest, EOFError)
            if isinstance(line, str):
                return line
            raise line

        monkeypatch.setattr(builtins, "input", read_line)
        monkeypatch.setattr(sys, "stdin", Terminal())

    return arrange


class Echo:
    """Answers with the last message in capital letters, one letter at a time."""

    def __init__(self) -> None:
        self.seen: list[Messages] = []
        self.interrupt_after: int | None = None

    def __call__(self, messages: Messages) -> Generator[str, None, None]:
        self.seen.append(messages)
        for i, letter in enumerate(messages[-1]["content"].upper()):
            if i == self.interrupt_after:
                raise KeyboardInterrupt
            yield letter


def user(text: str) -> dict[str, str]:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    """A message of the model."""
    return {"role": "assistant", "content": text}


def test_an_answer_is_written_and_becomes_part_of_the_conversation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    conversation = Conversation(Echo())
    conversation.say("ab")
    assert capsys.readouterr().out == "AB\n"
    assert conversation.messages == [user("ab"), assistant("AB")]


def test_the_next_turn_sees_all_before_it_and_the_system_message() -> None:
    echo = Echo()
    system = {"role": "system", "content": "s"}
    conversation = Conversation(echo, [system])
    conversation.say("a")
    conversation.say("b")
    assert echo.seen[1] == [system, user("a"), assistant("A"), user("b")]


def test_clearing_keeps_the_system_message() -> None:
    conversation = Conversation(Echo(), [{"role": "system", "content": "s"}])
    conversation.say("a")
    conversation.clear()
    assert conversation.messages == [{"role": "system", "content": "s"}]


def test_each_line_of_a_pipe_is_a_turn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n\nb\n"))
    answer_lines(Conversation(Echo()))
    assert capsys.readouterr().out == "A\nB\n"


def test_ctrl_c_stops_the_answer_and_not_the_conversation(typing: Callable[..., None]) -> None:
    typing("abc", "d")
    echo = Echo()
    echo.interrupt_after = 2
    conversation = Conversation(echo)
    talk(conversation)
    assert conversation.messages == [user("abc"), assistant("AB"), user("d"), assistant("D")]


def test_ctrl_c_in_a_pipe_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc\n"))
    echo = Echo()
    echo.interrupt_after = 1
    with pytest.raises(KeyboardInterrupt):
        answer_lines(Conversation(echo))


@pytest.mark.parametrize("command", ["/exit", "/quit"])
def test_exit_leaves(typing: Callable[..., None], command: str) -> None:
    typing("a", command, "b")
    conversation = Conversation(Echo())
    talk(conversation)
    assert conversation.messages == [user("a"), assistant("A")]


def test_clear_and_help_are_no_messages(
    typing: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    typing("a", "/clear", "/help", "  ", "b")
    conversation = Conversation(Echo())
    talk(conversation)
    assert conversation.messages == [user("b"), assistant("B")]
    assert "/clear" in capsys.readouterr().err


def test_a_refused_message_is_explained_and_left_out(
    typing: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(messages: Messages) -> Generator[str, None, None]:
        raise ContextLengthError("too long")
        yield ""

    typing("a")
    conversation = Conversation(refuse)
    talk(conversation)
    assert conversation.messages == []
    assert "too long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one"], "one"),
        (["one\\", "two\\", "three"], "one\ntwo\nthree"),
        (['"""', "one", "", 'two"""'], "one\n\ntwo"),
        (['"""one', "two", '"""'], "one\ntwo"),
        ([KeyboardInterrupt, "one"], "one"),
        (["one\\", KeyboardInterrupt, "two"], "two"),
        ([EOFError], None),
    ],
)
def test_messages_may_have_several_lines_and_ctrl_c_drops_what_was_typed(
    typing: Callable[..., None], lines: list[Typed], message: str | None
) -> None:
    typing(*lines)
    assert read_message() == message
