"""What a scheduling decision costs: ``schedule()`` + ``update()``, with nothing computed.

Requests decode, so many at once, while 10,000 more wait. A runner that gives every row token 2
takes the model's place, and only the scheduler's own calls are timed. One JSON line per number of
running requests.

    python benchmarks/scheduler.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from chairlift.config import EngineLimits, SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.inputs import CoreRequest
from chairlift.sampling_params import SamplingParams
from workload import describe_machine

NUM_PROMPT_TOKENS, BLOCK_SIZE = 128, 16


def make_scheduler(num_running: int, num_waiting: int, num_steps: int) -> Scheduler:
    """A scheduler that has room for ``num_running`` requests and holds ``num_waiting`` more."""
    num_tokens = NUM_PROMPT_TOKENS + num_steps + 8
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=num_running,
            max_num_batched_tokens=num_running * NUM_PROMPT_TOKENS,
            max_num_waiting=num_running + num_waiting,
        ),
        EngineLimits(
            vocab_size=50_000,
            max_model_len=2 * num_tokens,
            block_size=BLOCK_SIZE,
            num_kv_blocks=2 * num_running * (num_tokens // BLOCK_SIZE + 2),
            max_num_waiting=num_running + num_waiting,
        ),
    )
    params = SamplingParams(max_tokens=num_tokens - NUM_PROMPT_TOKENS, ignore_eos=True)
    for number in range(num_running + num_waiting):
        prompt = tuple(range(number, number + NUM_PROMPT_TOKENS))
        scheduler.add_request(CoreRequest(str(number), prompt, params, 0.0, ()))
    return scheduler


def execute(plan: SchedulerOutput) -> ModelRunnerOutput:
    """Give every row that yields the same token."""
    return ModelRunnerOutput({row.request_id: (2,) for row in plan.scheduled if row.yields_token})


def measure(num_running: int, num_waiting: int, num_steps: int) -> dict[str, float]:
    """Time decode steps of ``num_running`` requests; medians in microseconds."""
    scheduler = make_scheduler(num_running, num_waiting, num_steps)
    schedule_s, update_s = [], []
    for step in range(num_steps + 1):
        start_s = time.perf_counter()
        plan = scheduler.schedule(float(step))
        planned_s = time.perf_counter()
        result = execute(plan)
        executed_s = time.perf_counter()
        scheduler.update(plan, result, float(step))
        if step:  # the first one reads the prompts
            schedule_s.append(planned_s - start_s)
            update_s.append(time.perf_counter() - executed_s)
    return {
        "schedule_us": round(statistics.median(schedule_s) * 1e6, 1),
        "update_us": round(statistics.median(update_s) * 1e6, 1),
    }


def main() -> None:
    """Read the command line and print one JSON line per size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    print(json.dumps(describe_machine()), flush=True)
    for num_running in args.running:
        costs = measure(num_running, args.waiting, args.steps)
        print(json.dumps({"running": num_running, "waiting": args.waiting, **costs}), flush=True)


if __name__ == "__main__":
    main()
