"""What is reported about tokens: the model's own logprobs, ranks and alternatives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.runner.sampler_reference import log_softmax, sample_positions

from chairlift._native import available_isas
from chairlift.errors import RequestFailedError
from chairlift.kernels.sampling import ThreadTeam
from chairlift.runner.sampler import Sampler
from chairlift.sampling_params import SamplingParams


def _rows(num_rows: int, vocab_size: int, scale: float = 3.0) -> np.ndarray:
    generator = np.random.default_rng(vocab_size)
    return (generator.standard_normal((num_rows, vocab_size)) * scale).astype(np.float32)


# A float32 logprob below 32 is rounded by at most 2^-20; the normaliser is far more exact.
LOGPROB_ERROR = 2.0**-19


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("vocab_size", [1, 7, 97, 1024, 5003])
def test_logprobs_are_the_log_softmax(
    isa: str, vocab_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", isa)
    logits = _rows(4, vocab_size)
    targets = np.array([0, vocab_size - 1, vocab_size // 2, 0], dtype=np.int32)
    reports = Sampler(vocab_size, ThreadTeam(1)).prompt_logprobs(logits, targets, 20)
    expected = log_softmax(logits)
    for row, report in enumerate(reports):
        assert report.token_id == targets[row]
        assert report.logprob == pytest.approx(expected[row, targets[row]], abs=LOGPROB_ERROR)
        order = np.argsort(-logits[row], kind="stable")
        assert [token for token, _ in report.top] == order[:20].tolist()
        assert [logprob for _, logprob in report.top] == pytest.approx(
            expected[row, order[:20]].tolist(), abs=LOGPROB_ERROR
        )
        assert report.rank == order.tolist().index(targets[row]) + 1


def test_large_logits_do_not_overflow() -> None:
    logits = np.array([[3e38, 3e38, -3e38]], dtype=np.float32)
    (report,) = Sampler(3, ThreadTeam(1)).prompt_logprobs(logits, np.zeros(1, np.int32), 1)
    assert report.logprob == pytest.approx(-np.log(2), abs=1e-6)


def test_a_certain_token_has_logprob_zero() -> None:
    logits = np.array([[200.0, 0.0, -50.0]], dtype=np.float32)
    (report,) = Sampler(3, ThreadTeam(1)).prompt_logprobs(logits, np.zeros(1, np.int32), 2)
    assert report.logprob == 0.0
    assert report.top == ((0, 0.0), (1, -200.0))


def test_a_token_the_model_excludes_has_an_infinite_logprob() -> None:
    logits = np.array([[0.0, -np.inf, -1.0]], dtype=np.float32)
    (report,) = Sampler(3, ThreadTeam(1)).prompt_logprobs(logits, np.ones(1, np.int32), 1)
    assert (report.logprob, report.rank) == (-np.inf, 3)


def test_a_sampled_token_has_the_same_float_as_its_entry_among_the_alternatives() -> None:
    logits = _rows(1, 300, scale=1.0)[0]
    sampled = sample_positions(logits, SamplingParams(seed=1, top_k=10, logprobs=10), 200)
    ranks = set()
    for row in range(200):
        report = sampled.token_logprob(row)
        assert report is not None
        assert dict(report.top)[report.token_id] == report.logprob
        assert report.top[report.rank - 1][0] == report.token_id
        ranks.add(report.rank)
    assert len(ranks) > 5


def test_changes_of_the_logits_do_not_show_in_logprobs() -> None:
    logits = _rows(1, 50)[0]
    changed = SamplingParams(
        seed=1, temperature=2.0, top_p=0.5, logit_bias={3: 100.0}, min_tokens=1,
        stop_token_ids=(4,), logprobs=5,
    )  # fmt: skip
    report = sample_positions(logits, changed, 1).token_logprob(0)
    assert report is not None
    assert report.token_id == 3
    assert report.logprob == pytest.approx(float(log_softmax(logits)[3]), abs=LOGPROB_ERROR)
    assert [token for token, _ in report.top] == np.argsort(-logits)[:5].tolist()


def test_alternatives_and_ranks_order_ties_by_id() -> None:
    logits = np.full((4, 100), -1.0, dtype=np.float32)
    logits[:, [20, 40, 60, 80]] = 2.0
    sampler = Sampler(100, ThreadTeam(1))
    reports = sampler.prompt_logprobs(logits, np.array([60, 99, 0, 50], np.int32), 5)
    assert [token for token, _ in reports[0].top] == [20, 40, 60, 80, 0]
    # Before 50 come the four and, of its equals, 0 to 49 without 20 and 40.
    assert [report.rank for report in reports] == [3, 100, 5, 53]


def test_each_row_gets_as_many_alternatives_as_it_asked_for() -> None:
    sampler = Sampler(50, ThreadTeam(1))
    for slot, wanted in enumerate([None, 0, 2, 20]):
        sampler.add(slot, SamplingParams(temperature=0.0, logprobs=wanted), [1])
    sampled = sampler.sample(_rows(4, 50), np.arange(4, dtype=np.int32), np.zeros(4, np.int32))
    reports = [sampled.token_logprob(row) for row in range(4)]
    assert [None if report is None else len(report.top) for report in reports] == [None, 0, 2, 20]
    assert np.isnan(sampled.logprobs[0])
    assert reports[1] is not None
    assert (reports[1].rank, reports[1].logprob) == (1, sampled.logprobs[1])


def test_a_small_vocabulary_has_no_more_alternatives_than_tokens() -> None:
    sampled = sample_positions(_rows(1, 3)[0], SamplingParams(temperature=0.0, logprobs=20), 1)
    report = sampled.token_logprob(0)
    assert report is not None
    assert len(report.top) == 3


def test_scoring_without_alternatives_still_ranks() -> None:
    logits = np.arange(30, dtype=np.float32)[None]
    (report,) = Sampler(30, ThreadTeam(1)).prompt_logprobs(logits, np.array([27], np.int32), 0)
    assert (report.top, report.rank) == ((), 3)


def test_scoring_no_rows_gives_nothing() -> None:
    sampler = Sampler(30, ThreadTeam(1))
    assert sampler.prompt_logprobs(np.empty((0, 30), np.float32), np.empty(0, np.int32), 1) == []


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_scoring_bad_logits_fails_the_request(bad: float) -> None:
    logits = _rows(3, 40)
    logits[1, 38] = bad
    with pytest.raises(RequestFailedError, match="NaN or infinity"):
        Sampler(40, ThreadTeam(1)).prompt_logprobs(logits, np.zeros(3, np.int32), 1)
