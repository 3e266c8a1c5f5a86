"""Random sampling: which tokens are kept, and how a draw chooses among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runner.sampler_reference import assert_follows_reference, sample_positions

from chairlift._native import available_isas
from chairlift.sampling_params import SamplingParams


def _support(logits: list[float], num_positions: int = 4000, **params: float) -> set[int]:
    row = np.array(logits, dtype=np.float32)
    asked = SamplingParams(seed=1, **params)  # type: ignore[arg-type]
    return set(sample_positions(row, asked, num_positions).token_ids.tolist())


def _language_like(vocab_size: int, seed: int = 0) -> np.ndarray:
    """Return logits with a few likely tokens and a long tail."""
    generator = np.random.default_rng(seed)
    logits = generator.standard_normal(vocab_size) * 2.0
    logits[: vocab_size // 50 + 1] += generator.exponential(3.0, vocab_size // 50 + 1)
    return generator.permutation(logits).astype(np.float32)


class TestSupport:
    def test_top_k_keeps_exactly_k(self) -> None:
        assert _support([1, 5, 3, 4, 2], top_k=3, temperature=5.0) == {1, 2, 3}

    def test_top_k_takes_the_lowest_ids_of_a_tie(self) -> None:
        assert _support([1, 2, 2, 2, 3], top_k=3, temperature=5.0) == {1, 2, 4}

    def test_top_k_takes_the_lowest_ids_where_all_tie(self) -> None:
        assert _support([0.5] * 300, top_k=5) == {0, 1, 2, 3, 4}

    @pytest.mark.parametrize("top_k", [0, -1, 5])
    def test_top_k_of_all_keeps_all(self, top_k: int) -> None:
        assert _support([1, 5, 3, 4, 2], top_k=top_k, temperature=5.0) == {0, 1, 2, 3, 4}

    def test_top_k_larger_than_the_finite_logits_draws_only_those(self) -> None:
        inf = float("inf")
        assert _support([-inf, 1, -inf, 2, 1] + [-inf] * 200, top_k=50) == {1, 3, 4}

    def test_top_p_keeps_the_shortest_prefix_that_reaches_it(self) -> None:
        logits = np.log([0.1, 0.4, 0.2, 0.3]).tolist()
        assert _support(logits, top_p=0.39) == {1}
        assert _support(logits, top_p=0.41) == {1, 3}
        assert _support(logits, top_p=0.69) == {1, 3}
        assert _support(logits, top_p=0.71) == {1, 2, 3}
        assert _support(logits, top_p=0.95) == {0, 1, 2, 3}

    def test_top_p_takes_the_lowest_ids_of_a_tie(self) -> None:
        assert _support([0.0] * 200, top_p=0.0249) == {0, 1, 2, 3, 4}

    def test_the_smallest_top_p_keeps_the_likeliest(self) -> None:
        assert _support([1, 2, 2, 0], top_p=1e-9) == {1}

    def test_min_p_is_relative_to_the_likeliest(self) -> None:
        logits = np.log([0.5, 0.26, 0.14, 0.1]).tolist()
        assert _support(logits, min_p=0.5) == {0, 1}
        assert _support(logits, min_p=0.27) == {0, 1, 2}
        assert _support(logits, min_p=0.19) == {0, 1, 2, 3}

    def test_min_p_of_one_keeps_every_likeliest_token(self) -> None:
        assert _support([3, 1, 3, 2.999], min_p=1.0) == {0, 2}

    def test_filters_see_the_tempered_distribution(self) -> None:
        logits = np.log([0.5, 0.26, 0.14, 0.1]).tolist()
        # At temperature 2: 0.35, 0.25, 0.18, 0.16 (times 1 / 1.88).
        assert _support(logits, min_p=0.5, temperature=2.0) == {0, 1, 2}
        assert _support(logits, top_p=0.6, temperature=2.0) == {0, 1}
        assert _support(logits, top_p=0.6, temperature=0.5) == {0}

    def test_top_p_is_of_what_top_k_leaves(self) -> None:
        logits = np.log([0.4, 0.3, 0.2, 0.1]).tolist()
        # 0.4 is 57 % of the two that are left, and 40 % of all.
        assert _support(logits, top_k=2, top_p=0.55) == {0}
        assert _support(logits, top_p=0.55) == {0, 1}

    def test_top_p_is_of_what_min_p_leaves(self) -> None:
        logits = np.log([0.4, 0.3, 0.2, 0.1]).tolist()
        assert _support(logits, min_p=0.7, top_p=0.55) == {0}

    def test_excluded_tokens_are_never_drawn(self) -> None:
        logits = [-float("inf")] * 2000
        logits[70], logits[1900] = 0.0, 0.5
        assert _support(logits) == {70, 1900}

    def test_a_vocabulary_of_one_token_works(self) -> None:
        assert _support([0.0], 10, top_p=0.5, top_k=1, min_p=0.5) == {0}


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=3),
        SamplingParams(seed=3, temperature=0.7),
        SamplingParams(seed=3, temperature=30.0),
        SamplingParams(seed=3, top_k=50),
        SamplingParams(seed=3, top_k=2000, temperature=20.0),
        SamplingParams(seed=3, top_p=0.95),
        SamplingParams(seed=3, top_p=0.95, temperature=20.0),
        SamplingParams(seed=3, top_p=0.9999999),
        SamplingParams(seed=3, min_p=0.01),
        SamplingParams(seed=3, temperature=0.8, top_k=300, top_p=0.9, min_p=1e-4),
    ],
    ids=lambda params: f"T{params.temperature}k{params.top_k}p{params.top_p}m{params.min_p}",
)
def test_draws_follow_the_reference_on_every_instruction_set(
    isa: str, params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", isa)
    assert_follows_reference(_language_like(5003), params)


def test_a_huge_vocabulary_is_sampled_like_a_small_one() -> None:
    params = SamplingParams(seed=11, top_p=0.9, top_k=100_000, temperature=1.5)
    assert_follows_reference(_language_like(262_151), params, num_positions=8)


def _awkward_rows() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    one = np.float32(1.0)
    next_to_one = np.nextafter(one, np.float32(2.0))
    with_gaps = generator.standard_normal(700)
    with_gaps[generator.random(700) < 0.6] = -np.inf
    return {
        "all equal": np.full(700, 2.5),
        "two neighbouring floats": generator.choice([one, next_to_one], 700),
        "few values": generator.integers(-3, 4, 700).astype(float),
        "rising": np.linspace(-20, 5, 700),
        "falling": np.linspace(5, -20, 700),
        "mostly excluded": with_gaps,
        "around zero": generator.standard_normal(700) * 1e-30,
        "subnormal": generator.integers(0, 900, 700) * 1e-42,
        "far apart": np.concatenate([[3e38, -3e38], generator.standard_normal(700)]),
        "one far below": np.concatenate([[-3e38], generator.standard_normal(700)]),
        "zeros of both signs": generator.choice([0.0, -0.0], 700),
    }


@pytest.mark.parametrize("name", _awkward_rows())
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=2, top_k=150),
        SamplingParams(seed=2, top_p=0.4),
        SamplingParams(seed=2, top_k=400, top_p=0.7, min_p=0.001, temperature=1.3),
    ],
    ids=["top_k", "top_p", "all"],
)
def test_awkward_logits_are_cut_in_the_right_place(name: str, params: SamplingParams) -> None:
    assert_follows_reference(_awkward_rows()[name].astype(np.float32), params)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_settings_follow_the_reference(data: st.DataObject) -> None:
    # A grid of logits makes many ties; None is a token that cannot come.
    levels = st.lists(st.one_of(st.none(), st.integers(-40, 40)), min_size=1, max_size=400).filter(
        lambda values: any(value is not None for value in values)
    )
    values = data.draw(levels)
    logits = np.array([-np.inf if v is None else v / 8 for v in values], dtype=np.float32)
    params = SamplingParams(
        seed=data.draw(st.integers(-(2**63), 2**63 - 1)),
        temperature=data.draw(st.sampled_from([0.3, 0.77, 1.0, 2.1, 10.0])),
        top_k=data.draw(st.integers(0, len(values))),
        top_p=data.draw(st.one_of(st.just(1.0), st.floats(1e-3, 1.0))),
        # Away from the logarithms of the grid, where rounding decides.
        min_p=data.draw(st.sampled_from([0.0, 0.0123, 0.1234, 0.5432])),
    )
    assert_follows_reference(logits, params, num_positions=20)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_they_should(temperature: float) -> None:
    probabilities = np.array([0.02, 0.3, 0.08, 0.2, 0.05, 0.15, 0.1, 0.1])
    count = 20_000
    logits = np.log(probabilities).astype(np.float32)
    tokens = sample_positions(
        logits, SamplingParams(seed=99, temperature=temperature), count
    ).token_ids
    expected = probabilities ** (1 / temperature)
    expected *= count / expected.sum()
    observed = np.bincount(tokens, minlength=8)
    # Seven degrees of freedom: above 30 once in ten thousand seeds.
    assert float(((observed - expected) ** 2 / expected).sum()) < 30


class TestRandomStream:
    LOGITS = np.zeros(1000, dtype=np.float32)

    def _tokens(self, seed: int, choice_index: int = 0) -> list[int]:
        params = SamplingParams(seed=seed)
        sampled = sample_positions(self.LOGITS, params, 64, choice_index=choice_index)
        return sampled.token_ids.tolist()

    def test_the_same_seed_gives_the_same_tokens(self) -> None:
        assert self._tokens(5) == self._tokens(5)

    @pytest.mark.parametrize("other", [6, -5, 5 + 2**32, -(2**63)])
    def test_another_seed_gives_other_tokens(self, other: int) -> None:
        same = sum(a == b for a, b in zip(self._tokens(5), self._tokens(other), strict=True))
        assert same < 5

    def test_choices_differ(self) -> None:
        streams = [tuple(self._tokens(5, choice)) for choice in range(4)]
        assert len(set(streams)) == 4

    def test_positions_differ(self) -> None:
        assert len(set(self._tokens(5))) > 50
