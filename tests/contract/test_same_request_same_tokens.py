"""Promise 1: a request's token ids and logprobs depend on the request alone, bit for bit.

Every test first asks each request alone, then under some other condition, and compares.
"""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.harness import GREEDY, SEEDED, Job, Run, Setting, alone, play

from chairlift.config import Dtype, KvCacheDtype, Quantization
from chairlift.outputs import FinishReason

PROMPT_LENGTHS = (1, 2, 15, 16, 17, 33, 64, 100, 129, 200)


def prompts(seed: int = 0) -> list[tuple[int, ...]]:
    """Random prompts whose lengths lie on and beside block, tile and chunk borders."""
    rng = random.Random(seed)
    return [tuple(rng.randrange(3, 290) for _ in range(n)) for n in PROMPT_LENGTHS]


def jobs() -> list[Job]:
    """Half greedy, half seeded, over all prompt lengths."""
    return [
        Job(f"r{i}", prompt, GREEDY if i % 2 else replace(SEEDED, seed=i))
        for i, prompt in enumerate(prompts())
    ]


ARITHMETIC: dict[str, tuple[Dtype, Quantization, KvCacheDtype]] = {
    "float32": ("float32", "none", "auto"),
    "bfloat16": ("bfloat16", "none", "auto"),
    "int8": ("bfloat16", "int8", "auto"),
    "gguf": ("bfloat16", "gguf", "auto"),
    "int8 cache": ("bfloat16", "none", "int8"),
}


@pytest.fixture(scope="module", params=list(ARITHMETIC))
def base(
    request: pytest.FixtureRequest, random_model_path: Path, random_gguf_path: Path
) -> Setting:
    """The conditions under which requests are asked alone."""
    dtype, quantization, kv_cache_dtype = ARITHMETIC[request.param]
    model = random_gguf_path if quantization == "gguf" else random_model_path
    return Setting(
        model=model, dtype=dtype, quantization=quantization, kv_cache_dtype=kv_cache_dtype
    )


@pytest.fixture(scope="module")
def expected(base: Setting) -> Run:
    """Each request alone, in an engine that has never seen another one's blocks."""
    core = replace(base, enable_prefix_caching=False).build()
    return Run({job.name: alone(core, job) for job in jobs()}, 0, 0)


def check(run: Run, expected: Run) -> None:
    """All answers of a run are those expected, bit for bit."""
    for name, answer in run.answers.items():
        assert answer == expected.answers[name], f"request {name} has another answer"
    assert run.answers


def test_answers_alone_are_not_trivial(expected: Run) -> None:
    answers = list(expected.answers.values())
    assert all(len(a.token_ids) == 24 == len(a.logprob_bits) for a in answers)
    assert len({a.token_ids for a in answers}) == len(answers)
    assert max(len(set(a.token_ids)) for a in answers) > 8


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_among_shuffled_neighbours(base: Setting, expected: Run, seed: int) -> None:
    shuffled = jobs()
    random.Random(seed).shuffle(shuffled)
    check(play(base.build(), shuffled), expected)


@pytest.mark.parametrize("seed", [4, 5])
def test_with_other_arrivals(base: Setting, expected: Run, seed: int) -> None:
    rng = random.Random(seed)
    late = [replace(job, arrives_at=rng.randrange(40)) for job in jobs()]
    check(play(base.build(), late), expected)


@pytest.mark.parametrize("chunk", [1, 7, 64, 4096])
def test_with_prompts_cut_into_chunks(base: Setting, expected: Run, chunk: int) -> None:
    core = replace(base, max_num_batched_tokens=chunk, max_num_seqs=1).build()
    check(play(core, jobs()), expected)


@pytest.mark.parametrize("budget", [16, 37])
def test_with_chunks_and_decodes_in_one_step(base: Setting, expected: Run, budget: int) -> None:
    core = replace(base, max_num_batched_tokens=budget, max_num_seqs=12).build()
    check(play(core, jobs()), expected)


@pytest.mark.parametrize("target_itl_s", [1e-6, 0.003])
def test_with_steps_cut_to_a_target_for_gaps(
    base: Setting, expected: Run, target_itl_s: float
) -> None:
    late = [replace(job, arrives_at=4 * number) for number, job in enumerate(jobs())]
    check(play(replace(base, target_itl_s=target_itl_s).build(), late), expected)


def test_with_prompts_that_wait_for_company(base: Setting, expected: Run) -> None:
    late = [replace(job, arrives_at=2 * number) for number, job in enumerate(jobs())]
    check(play(replace(base, scheduler_delay_factor=3.0).build(), late), expected)


@pytest.mark.parametrize("block_size", [5, 8, 32, 64, 128])
def test_with_other_block_sizes(base: Setting, expected: Run, block_size: int) -> None:
    check(play(replace(base, block_size=block_size).build(), jobs()), expected)


def test_with_and_without_a_prefix_cache_hit(base: Setting, expected: Run) -> None:
    core = base.build()
    check(play(core, jobs()), expected)
    again = play(core, jobs())
    check(again, expected)
    assert again.num_cached_tokens["r9"] == 192


def test_with_only_two_cached_blocks(base: Setting, expected: Run) -> None:
    core = base.build()
    long = jobs()[-1]
    other = Job("other", (*long.prompt[:32], *long.prompt[:60]))
    play(core, [other])
    run = play(core, [long])
    check(run, expected)
    assert run.num_cached_tokens[long.name] == 32


@pytest.mark.parametrize(("num_kv_blocks", "block_size"), [(20, 16), (15, 16), (33, 8)])
def test_through_recompute_preemption(
    base: Setting, expected: Run, num_kv_blocks: int, block_size: int
) -> None:
    setting = replace(base, num_kv_blocks=num_kv_blocks, block_size=block_size)
    run = play(setting.build(), jobs())
    check(run, expected)
    assert run.num_preemptions > 0


def test_through_preemption_without_a_prefix_cache(base: Setting, expected: Run) -> None:
    setting = replace(base, num_kv_blocks=15, enable_prefix_caching=False)
    run = play(setting.build(), jobs())
    check(run, expected)
    assert run.num_preemptions > 0


TIERS = {"room for everything": 1 / 64, "two blocks": 1 / 16384}
"""Sizes of the second tier in GiB. A block of 16 tokens of the model has 16 or 32 KiB."""


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize(("num_kv_blocks", "block_size"), [(15, 16), (29, 8), (46, 5)])
def test_through_swapping(
    base: Setting, expected: Run, tier: str, caching: bool, num_kv_blocks: int, block_size: int
) -> None:
    setting = replace(
        base,
        num_kv_blocks=num_kv_blocks,
        block_size=block_size,
        enable_prefix_caching=caching,
        preemption_mode="swap",
        swap_space=TIERS[tier],
        max_preemptions=100,
    )
    run = play(setting.build(), jobs())
    check(run, expected)
    assert run.num_swapped_tokens > 0


def test_through_swapping_to_a_file_in_chunks_with_two_threads(
    base: Setting, expected: Run, tmp_path: Path
) -> None:
    setting = replace(
        base,
        num_kv_blocks=15,
        max_num_batched_tokens=37,
        num_threads=2,
        swap_space=TIERS["room for everything"],
        swap_path=str(tmp_path),
    )
    run = play(setting.build(), jobs())
    check(run, expected)
    assert run.num_swapped_tokens > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("max_preemptions", [0, 1])
def test_with_a_bound_on_preemptions(base: Setting, expected: Run, max_preemptions: int) -> None:
    run = play(replace(base, num_kv_blocks=15, max_preemptions=max_preemptions).build(), jobs())
    check(run, expected)
    assert (run.num_preemptions > 0) == (max_preemptions > 0)
    assert run.num_preemptions <= len(jobs()) * max_preemptions


@pytest.mark.parametrize("seed", [6, 7])
def test_beside_cancelled_neighbours(base: Setting, expected: Run, seed: int) -> None:
    rng = random.Random(seed)
    noise = [
        Job(f"x{i}", prompt, SEEDED, rng.randrange(10), 10 + rng.randrange(10))
        for i, prompt in enumerate(prompts(seed))
    ]
    mixed = [*jobs(), *noise]
    rng.shuffle(mixed)
    run = play(replace(base, num_kv_blocks=60).build(), mixed)
    cancelled = [run.answers.pop(job.name) for job in noise]
    assert any(answer.finish_reason is FinishReason.ABORT for answer in cancelled)
    check(run, expected)


def test_with_two_threads(base: Setting, expected: Run) -> None:
    setting = replace(base, num_threads=2)
    check(play(setting.build(), jobs()), expected)
    check(play(replace(setting, max_num_batched_tokens=23).build(), jobs()), expected)


def test_with_everything_at_once(base: Setting, expected: Run) -> None:
    rng = random.Random(8)
    mixed = [replace(job, arrives_at=rng.randrange(20)) for job in jobs()]
    mixed += [
        Job(f"x{i}", p, GREEDY, rng.randrange(20), 20 + rng.randrange(9))
        for i, p in enumerate(prompts(8))
    ]
    rng.shuffle(mixed)
    setting = replace(
        base, num_threads=2, max_num_batched_tokens=29, block_size=8, num_kv_blocks=40
    )
    run = play(setting.build(), mixed)
    run.answers = {name: a for name, a in run.answers.items() if name.startswith("r")}
    check(run, expected)
    assert run.num_preemptions > 0


def test_prompt_logprobs_under_chunks_preemption_and_neighbours(base: Setting) -> None:
    scored = [
        replace(job, params=replace(job.params, prompt_logprobs=1, max_tokens=8)) for job in jobs()
    ]
    core = replace(base, enable_prefix_caching=False).build()
    alone_run = Run({job.name: alone(core, job) for job in scored}, 0, 0)
    setting = replace(base, num_kv_blocks=15, max_num_batched_tokens=37)
    for swap_space in (0.0, 1 / 64):
        check(play(replace(setting, swap_space=swap_space).build(), scored), alone_run)
    for job in scored:
        bits = alone_run.answers[job.name].prompt_logprob_bits
        assert len(bits) == len(job.prompt) - 1


@pytest.mark.parametrize("num_threads", [1, 2])
def test_weights_kept_as_in_the_file_answer_as_in_bfloat16(
    random_gguf_path: Path, num_threads: int
) -> None:
    plain = Setting(random_gguf_path, "bfloat16", "none", num_threads=num_threads)
    kept = replace(plain, quantization="gguf")
    check(play(kept.build(), jobs()), play(plain.build(), jobs()))


def test_choices_of_one_request_differ_and_repeat(base: Setting) -> None:
    prompt = prompts()[5]
    children = [Job(f"r/{i}", prompt, SEEDED, choice_index=i) for i in range(4)]
    first = play(base.build(), children).answers
    core = base.build()
    second = {child.name: alone(core, child) for child in reversed(children)}
    assert first == second
    assert len({answer.token_ids for answer in first.values()}) == 4


def test_seeds_differ(base: Setting) -> None:
    core = base.build()
    prompt = prompts()[4]
    answers = {
        alone(core, Job("r", prompt, replace(SEEDED, seed=seed))).token_ids for seed in range(1, 6)
    }
    assert len(answers) == 5


def test_weights_from_the_cache_change_nothing(
    base: Setting, expected: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIRLIFT_CACHE", str(tmp_path))
    monkeypatch.setattr("chairlift.runner.weight_cache.MIN_BYTES", 0)
    base.build()
    for thread in threading.enumerate():
        if thread.name == "chairlift-weight-cache":
            thread.join()
    (file,) = (tmp_path / "weights").glob("*.weights")
    written_ns = file.stat().st_mtime_ns
    check(play(base.build(), jobs()), expected)
    assert file.stat().st_mtime_ns > written_ns  # reading marks it as used
