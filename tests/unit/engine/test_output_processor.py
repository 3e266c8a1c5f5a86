"""From tokens of steps to pieces of answers: text, stops, logprobs, choices, ends."""

from __future__ import annotations

import pytest

from chairlift.engine.output_processor import OutputProcessor
from chairlift.errors import RequestFailedError
from chairlift.inputs import GenerateRequest
from chairlift.outputs import (
    ChoiceOutput,
    FinishReason,
    RequestOutput,
    RequestTimings,
    StepOutput,
    TokenLogprob,
)
from chairlift.sampling_params import SamplingParams
from chairlift.tokenization.tokenizer import Tokenizer

EOS = 258


class Bench:
    """An output processor fed with text, a byte a token and a token a step."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.processor = OutputProcessor(tokenizer)
        self.now_s = 100.0
        self.aborts: list[str] = []
        self.news: list[str] = []
        self.pieces: list[RequestOutput] = []

    def add(self, *, stream: bool = True, key: str = "k", **params: object) -> None:
        request = GenerateRequest(
            "client id",
            (65, 66, 67),
            SamplingParams(max_tokens=99, seed=5, **params),  # type: ignore[arg-type]
            arrival_time_s=90.0,
        )
        n = request.sampling_params.n
        core_ids = [key] if n == 1 else [f"{key}/{i}" for i in range(n)]
        self.processor.add(key, request, core_ids, is_streamed=stream)

    def step(self, *outputs: StepOutput) -> None:
        self.now_s += 1.0
        processed = self.processor.process(outputs, self.now_s)
        self.aborts += processed.aborts
        self.news = list(processed.news)
        for key in processed.news:
            self.pieces.append(self.processor.take(key))

    def feed(self, text: str | bytes, core_id: str = "k") -> None:
        for byte in text.encode() if isinstance(text, str) else text:
            self.step(StepOutput(core_id, (byte,)))

    def end(self, reason: FinishReason = FinishReason.LENGTH, token: int = 33) -> None:
        self.step(StepOutput("k", (token,), reason))

    @property
    def text(self) -> str:
        return "".join(choice.text for choice in self.choices)

    @property
    def choices(self) -> list[ChoiceOutput]:
        return [choice for piece in self.pieces for choice in piece.choices]

    @property
    def token_ids(self) -> list[int]:
        return [token for choice in self.choices for token in choice.token_ids]


@pytest.fixture
def bench(tokenizer: Tokenizer) -> Bench:
    return Bench(tokenizer)


def test_a_stream_gets_a_piece_for_each_step(bench: Bench) -> None:
    bench.add()
    bench.feed("Hi")
    bench.end()
    assert [choice.text for choice in bench.choices] == ["H", "i", "!"]
    assert [piece.finished for piece in bench.pieces] == [False, False, True]
    last = bench.pieces[-1]
    assert (last.request_id, last.seed, last.num_output_tokens) == ("client id", 5, 3)
    assert last.choices[0].finish_reason is FinishReason.LENGTH


def test_pieces_that_were_not_taken_come_as_one(bench: Bench) -> None:
    bench.add(logprobs=0)
    for token in b"Hey":
        logprob = TokenLogprob(token, -1.0, 1, ())
        bench.processor.process([StepOutput("k", (token,), logprobs=(logprob,))], 1.0)
    (choice,) = bench.processor.take("k").choices
    assert (choice.text, choice.token_ids) == ("Hey", tuple(b"Hey"))
    assert choice.logprobs is not None
    assert [entry.token_id for entry in choice.logprobs] == list(b"Hey")


def test_a_whole_answer_comes_once_at_the_end(bench: Bench) -> None:
    bench.add(stream=False)
    bench.feed("Hi")
    assert bench.pieces == []
    bench.end()
    (choice,) = bench.choices
    assert (choice.text, choice.token_ids) == ("Hi!", (72, 105, 33))


@pytest.mark.parametrize("text", ["schön 雪 🎿 end", "plain"])
@pytest.mark.parametrize("stop", [(), ("never there",)])
def test_streamed_and_whole_text_are_the_same(
    bench: Bench, tokenizer: Tokenizer, text: str, stop: tuple[str, ...]
) -> None:
    other = Bench(tokenizer)
    for each, stream in ((bench, True), (other, False)):
        each.add(stream=stream, stop=stop)
        each.feed(text)
        each.end()
    assert bench.text == other.text == text + "!"
    assert not any("�" in choice.text for choice in bench.choices)


def test_an_unfinished_character_becomes_a_replacement_only_at_the_end(bench: Bench) -> None:
    bench.add()
    bench.feed("雪".encode()[:2])
    assert bench.text == ""
    bench.step(StepOutput("k", (), FinishReason.ABORT))
    assert bench.text == "�"


def test_a_stop_string_ends_the_request_and_is_not_shown(bench: Bench) -> None:
    bench.add(stop=("DEF",))
    bench.feed("ABCDE")
    assert bench.text == "ABC"  # nothing of the stop string's start is given away
    bench.feed("F")
    assert bench.text == "ABC"
    last = bench.choices[-1]
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, "DEF")
    assert bench.aborts == ["k"]


def test_text_held_back_for_a_stop_string_comes_out_when_it_is_none(bench: Bench) -> None:
    bench.add(stop=("DEF",))
    bench.feed("ABDEX")
    assert bench.text == "ABDEX"
    bench.feed("D")
    bench.end()
    assert bench.text == "ABDEXD!"


def test_the_tokens_of_a_stop_string_are_kept_with_their_logprobs(bench: Bench) -> None:
    bench.add(stop=("BC",), logprobs=0)
    for token in b"ABC":
        logprob = TokenLogprob(token, -1.0, 1, ())
        bench.step(StepOutput("k", (token,), logprobs=(logprob,)))
    logprobs = [entry for choice in bench.choices for entry in choice.logprobs or ()]
    assert bench.text == "A"
    assert bench.token_ids == [entry.token_id for entry in logprobs] == list(b"ABC")


def test_tokens_after_the_stop_string_in_the_same_step_are_dropped(bench: Bench) -> None:
    bench.add(stop=("BC",), logprobs=0)
    logprobs = tuple(TokenLogprob(token, -1.0, 1, ()) for token in b"ABCDE")
    bench.step(StepOutput("k", tuple(b"ABCDE"), FinishReason.LENGTH, logprobs=logprobs))
    (choice,) = bench.choices
    assert (choice.text, choice.token_ids) == ("A", tuple(b"ABC"))
    assert choice.logprobs == logprobs[:3]
    assert choice.finish_reason is FinishReason.STOP
    assert bench.aborts == []  # the core has ended it already


def test_a_first_token_that_is_the_stop_gives_empty_text_and_one_logprob(bench: Bench) -> None:
    bench.add(stop=("\n",), logprobs=3)
    bench.step(StepOutput("k", (10,), logprobs=(TokenLogprob(10, -0.5, 1, ()),)))
    (choice,) = bench.choices
    assert (choice.text, choice.token_ids, len(choice.logprobs or ())) == ("", (10,), 1)
    assert choice.stop_reason == "\n"


def test_a_stop_string_can_be_shown(bench: Bench) -> None:
    bench.add(stop=("DEF",), include_stop_str_in_output=True)
    bench.feed("ABCDEF")
    assert bench.text == "ABCDEF"
    assert bench.choices[-1].finish_reason is FinishReason.STOP


def test_no_stop_string_ends_a_request_before_min_tokens(bench: Bench) -> None:
    bench.add(stop=("B",), min_tokens=4)
    bench.feed("ABBC")
    assert bench.text == "ABBC"
    assert bench.choices[-1].finish_reason is None
    bench.feed("B")
    assert (bench.text, bench.choices[-1].stop_reason) == ("ABBC", "B")


def test_a_stop_string_may_end_a_request_with_exactly_min_tokens(bench: Bench) -> None:
    bench.add(stop=("B",), min_tokens=2)
    bench.feed("BB")
    assert bench.text == "B"
    assert bench.choices[-1].finish_reason is FinishReason.STOP


def test_a_stop_string_completed_by_the_last_token_wins_over_the_length(bench: Bench) -> None:
    bench.add(stop=("B!",))
    bench.feed("AB")
    bench.end()
    assert (bench.text, bench.choices[-1].finish_reason) == ("A", FinishReason.STOP)


def test_whole_answers_end_at_stop_strings_too(bench: Bench) -> None:
    bench.add(stream=False, stop=("DEF",))
    bench.feed("ABCDEF")
    (choice,) = bench.choices
    assert (choice.text, choice.token_ids) == ("ABC", tuple(b"ABCDEF"))
    assert bench.aborts == ["k"]


@pytest.mark.parametrize("stream", [True, False])
def test_the_token_that_ends_a_request_is_not_in_the_text(bench: Bench, stream: bool) -> None:
    bench.add(stream=stream, skip_special_tokens=False, stop_token_ids=(33,))
    bench.feed("Hi")
    bench.step(StepOutput("k", (33,), FinishReason.STOP, stop_reason=33))
    assert bench.text == "Hi"
    assert bench.token_ids == [72, 105, 33]
    assert bench.choices[-1].stop_reason == 33


def test_special_tokens_are_left_out_or_shown_as_asked(bench: Bench, tokenizer: Tokenizer) -> None:
    shows = Bench(tokenizer)
    shows.add(skip_special_tokens=False)
    bench.add()
    for each in (bench, shows):
        each.step(StepOutput("k", (EOS,)))
    assert (bench.text, shows.text) == ("", "<|im_end|>")


def test_choices_of_one_step_come_in_one_piece(bench: Bench) -> None:
    bench.add(n=2)
    bench.step(StepOutput("k/1", (65,)), StepOutput("k/0", (66,)))
    (piece,) = bench.pieces
    assert [(choice.index, choice.text) for choice in piece.choices] == [(0, "B"), (1, "A")]


def test_each_choice_ends_once_and_the_request_with_the_last(bench: Bench) -> None:
    bench.add(n=2)
    bench.step(StepOutput("k/1", (65,), FinishReason.LENGTH), StepOutput("k/0", (66,)))
    bench.step(StepOutput("k/0", (67,)))
    bench.step(StepOutput("k/0", (68,), FinishReason.STOP))
    assert [piece.finished for piece in bench.pieces] == [False, False, True]
    ends = [c.index for c in bench.choices if c.finish_reason is not None]
    assert ends == [1, 0]


def test_a_whole_answer_has_all_choices_by_index(bench: Bench) -> None:
    bench.add(n=2, stream=False)
    bench.step(StepOutput("k/1", (65,), FinishReason.LENGTH), StepOutput("k/0", (66,)))
    assert bench.pieces == []
    bench.step(StepOutput("k/0", (67,), FinishReason.LENGTH))
    (piece,) = bench.pieces
    assert [choice.text for choice in piece.choices] == ["BC", "A"]
    assert piece.num_output_tokens == 3


def test_prompt_logprobs_are_given_once_and_whole(bench: Bench) -> None:
    bench.add(prompt_logprobs=0)
    second, third = TokenLogprob(66, -1.0, 1, ()), TokenLogprob(67, -2.0, 1, ())
    bench.step(StepOutput("k", prompt_logprobs=(second,)))
    assert bench.pieces == []
    bench.step(StepOutput("k", (68,), prompt_logprobs=(third,), num_cached_tokens=0))
    bench.end()
    assert [piece.prompt_logprobs for piece in bench.pieces] == [(None, second, third), None]


def test_a_prompt_that_is_only_scored_has_no_output(bench: Bench) -> None:
    bench.add(prompt_logprobs=0, stream=False)
    scores = (TokenLogprob(66, -1.0, 1, ()), TokenLogprob(67, -2.0, 1, ()))
    bench.step(StepOutput("k", (), FinishReason.LENGTH, prompt_logprobs=scores))
    (piece,) = bench.pieces
    assert piece.prompt_logprobs == (None, *scores)
    assert (piece.choices[0].text, piece.num_output_tokens) == ("", 0)


def test_a_failed_choice_fails_the_request_and_stops_the_others(bench: Bench) -> None:
    bench.add(n=2)
    bench.feed("A", "k/0")
    processed = bench.processor.process(
        [StepOutput("k/1", finish_reason=FinishReason.ERROR, error="NaN")], 200.0
    )
    assert processed.aborts == ["k/0"]
    with pytest.raises(RequestFailedError, match="request client id failed: NaN"):
        bench.processor.take("k")
    assert bench.processor.num_live_choices == 0
    assert bench.processor.process([StepOutput("k/0", (65,))], 201.0).news == {}


def test_a_removed_request_names_what_the_core_must_stop(bench: Bench) -> None:
    bench.add(n=3)
    bench.step(StepOutput("k/1", (65,), FinishReason.LENGTH))
    assert bench.processor.remove("k") == ["k/0", "k/2"]
    assert bench.processor.remove("k") == []
    assert bench.processor.process([StepOutput("k/0", (65,))], 200.0).news == {}
    finished = bench.processor.observations.requests_finished
    assert finished == {"length": 1, "abort": 2}


def test_live_choices_are_found_by_the_client_s_id(bench: Bench) -> None:
    bench.add(key="k")
    bench.add(key="k#1", n=2)
    assert bench.processor.live_core_ids("client id") == ["k", "k#1/0", "k#1/1"]
    assert bench.processor.live_core_ids("k") == []


def test_timings_and_cached_tokens_are_passed_on(bench: Bench) -> None:
    bench.add()
    first = RequestTimings(90.0, 95.0, 101.0, 101.0)
    bench.step(StepOutput("k", (65,), num_cached_tokens=2, timings=first))
    bench.step(StepOutput("k", (66,)))
    last = RequestTimings(90.0, 95.0, 101.0, 103.0)
    bench.step(StepOutput("k", (67,), FinishReason.LENGTH, num_cached_tokens=2, timings=last))
    assert [piece.num_cached_tokens for piece in bench.pieces] == [2, 2, 2]
    assert bench.pieces[-1].timings == last


def test_a_stop_string_sets_the_time_of_the_last_token(bench: Bench) -> None:
    bench.add(stop=("B",))
    bench.step(StepOutput("k", (65,), timings=RequestTimings(90.0, 95.0, 101.0, 101.0)))
    bench.step(StepOutput("k", (66,)))
    assert bench.pieces[-1].timings == RequestTimings(90.0, 95.0, 101.0, 102.0)


def test_latencies_are_observed_from_step_times(bench: Bench) -> None:
    bench.add()
    timings = RequestTimings(90.0, 95.0, 101.0, 101.0)
    bench.step(StepOutput("k", (65,), timings=timings))  # at 101
    bench.step(StepOutput("k", (66,)))  # at 102
    bench.step(StepOutput("k", (67, 68), FinishReason.LENGTH, timings=timings))  # at 103
    observed = bench.processor.observations
    assert observed.time_to_first_token_s.snapshot().sum == 11.0
    gaps = observed.inter_token_latency_s.snapshot()
    assert (gaps.count, gaps.sum) == (3, 2.0)  # 1 s, 1 s, and 0 within a step
    assert observed.e2e_latency_s.snapshot().sum == 13.0
    assert observed.queue_time_s.snapshot().sum == 5.0
    assert observed.generation_tokens.snapshot().sum == 4.0
    assert observed.requests_finished == {"length": 1}
