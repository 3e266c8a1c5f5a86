"""``chairlift generate``: continue prompts from the command line, a file or a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chairlift.cli.arguments import JsonOption, ModelOption
from chairlift.cli.options import (
    engine_options,
    flags_of,
    sampling_options,
    with_flags,
)
from chairlift.cli.progress import ensure_fetched
from chairlift.cli.prompts import Job, PromptSource, read_jobs
from chairlift.config import DEFAULT_MODEL, EngineConfig
from chairlift.outputs import ChoiceOutput, RequestOutput, TokenLogprob
from chairlift.sampling_params import SamplingParams

if TYPE_CHECKING:
    from chairlift.engine.llm import LLM

DEFAULT_MAX_TOKENS = 128


@engine_options()
@sampling_options(defaults={"max_tokens": DEFAULT_MAX_TOKENS})
@with_flags("source", flags_of(PromptSource, panel="Prompts"), lambda v: PromptSource(**v))
def generate(
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="Texts to continue.")
    ] = None,
    *,
    model: ModelOption = DEFAULT_MODEL,
    as_json: JsonOption = False,
    source: PromptSource,
    sampling: SamplingParams,
    config: Callable[[str], EngineConfig],
) -> None:
    """Continue prompts, all of them batched together, and write what comes out.

    Prompts come from the command line, from --file, or else from standard input. One answer is
    written as plain text, several with a heading each; --json writes a line per prompt, in the
    order of the prompts.

    Examples:

    \b
      chairlift generate "The capital of France is" --temperature 0
      chairlift generate --chat "Write a haiku about snow." --max-tokens 60
      chairlift generate --file prompts.txt --json > answers.jsonl
      cat essay.txt | chairlift generate --input-format whole --max-tokens 50
    """
    jobs = read_jobs(prompts or [], source)
    params = [job.sampling_params(sampling) for job in jobs]
    engine = config(model)
    ensure_fetched(model)
    from chairlift.engine.llm import LLM

    with LLM.from_config(engine) as llm:
        if len(jobs) == 1 and params[0].n == 1 and not as_json:
            stream_text(llm, jobs[0], params[0])
        else:
            (write_json if as_json else write_text)(jobs, run_jobs(llm, jobs, params))


def stream_text(llm: LLM, job: Job, params: SamplingParams) -> None:
    """Write the one text there is as it is made."""
    if job.messages is None:
        pieces = llm.stream(job.prompt, params)
    else:
        pieces = llm.stream_chat(job.messages, params)
    for piece in pieces:
        for choice in piece.choices:
            print(choice.text, end="", flush=True)
    print()


def run_jobs(
    llm: LLM, jobs: Sequence[Job], params: Sequence[SamplingParams]
) -> list[RequestOutput]:
    """Run plain prompts and chats, each kind as one batch; outputs in the order of the jobs."""
    outputs: dict[int, RequestOutput] = {}
    show = len(jobs) > 1 and sys.stderr.isatty()
    plain = [i for i, job in enumerate(jobs) if job.messages is None]
    chats = [i for i, job in enumerate(jobs) if job.messages is not None]
    if plain:
        prompts = [jobs[i].prompt for i in plain]
        done = llm.generate(prompts, [params[i] for i in plain], use_progress=show)
        outputs.update(zip(plain, done, strict=True))
    if chats:
        conversations = [jobs[i].messages or [] for i in chats]
        done = llm.chat(conversations, [params[i] for i in chats], use_progress=show)
        outputs.update(zip(chats, done, strict=True))
    return [outputs[i] for i in range(len(jobs))]


def write_text(jobs: Sequence[Job], outputs: Sequence[RequestOutput]) -> None:
    """Write the texts; with a heading over each when there are several."""
    choices = [(i, choice) for i, output in enumerate(outputs) for choice in output.choices]
    for i, choice in choices:
        if len(choices) > 1:
            print(f"==> {i + 1}/{len(jobs)}: {_title(jobs[i])} <==")
        print(choice.text)


def _title(job: Job) -> str:
    prompt = job.messages[-1].get("content", "") if job.messages else job.prompt
    text = " ".join(str(prompt).split())
    return text if len(text) <= 60 else text[:57] + "..."


def write_json(jobs: Sequence[Job], outputs: Sequence[RequestOutput]) -> None:
    """Write one line of JSON per job."""
    for index, (job, output) in enumerate(zip(jobs, outputs, strict=True)):
        print(json.dumps(json_line(index, job, output), ensure_ascii=False))


def json_line(index: int, job: Job, output: RequestOutput) -> dict[str, Any]:
    """Put a job and what came out of it into one object."""
    line: dict[str, Any] = {"index": index}
    if job.job_id is not None:
        line["id"] = job.job_id
    line |= {"prompt": job.prompt} if job.messages is None else {"messages": job.messages}
    line |= {
        "choices": [_choice(choice) for choice in output.choices],
        "seed": output.seed,
        "usage": {
            "prompt_tokens": len(output.prompt_token_ids),
            "completion_tokens": output.num_output_tokens,
            "cached_tokens": output.num_cached_tokens,
        },
    }
    if output.prompt_logprobs is not None:
        line["prompt_logprobs"] = [entry and _logprob(entry) for entry in output.prompt_logprobs]
    return line


def _choice(choice: ChoiceOutput) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "index": choice.index,
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "token_ids": list(choice.token_ids),
    }
    if choice.logprobs is not None:
        fields["logprobs"] = [_logprob(entry) for entry in choice.logprobs]
    return fields


def _logprob(entry: TokenLogprob) -> dict[str, Any]:
    return {
        "token_id": entry.token_id,
        "logprob": entry.logprob,
        "rank": entry.rank,
        "top": [list(pair) for pair in entry.top],
    }
