"""What is read without the library for command lines means the same to it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chairlift.cli.app import build_app
from chairlift.cli.flag_names import flag_name
from chairlift.cli.plain_serve import PlainServe, read_plain_serve
from chairlift.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from chairlift.engine.child import EngineChild
from chairlift.server.settings import ServerSettings

RECORDS = (ModelConfig, SchedulerConfig, CacheConfig, EngineConfig, ServerSettings)
# Fields that have no flag of one value: the model, other records, and flags of several values.
NOT_PLAIN = {
    "model", "cache", "scheduler", "tenants", "served_model_name", "api_key", "allowed_origin"
}  # fmt: skip
NUMBERS = {
    "memory_utilization": "0.25",
    "scheduler_delay_factor": "0.5",
    "max_body_bytes": "2048",
    "max_num_batched_tokens": "4096",
}
TEXTS = {
    "dtype": "float32",
    "quantization": "int8",
    "kv_cache_dtype": "int8",
    "batching": "static",
    "preemption_mode": "recompute",
    "scheduling_policy": "fair",
    "root_path": "/llm",
}


def _words(field: dataclasses.Field[Any]) -> list[str]:
    """A flag that sets the field to something else than its default."""
    flag = flag_name(field.name)
    if field.default is True:
        return [f"--no-{flag[2:]}"]
    if field.default is False:
        return [flag]
    if isinstance(field.default, int | float):
        return [flag, NUMBERS.get(field.name, "48")]
    if field.name == "swap_path":
        return [flag, "/tmp", "--swap-space", "2"]
    return [flag, TEXTS.get(field.name, "some-text")]


PLAIN = {
    field.name: _words(field)
    for record in RECORDS
    for field in dataclasses.fields(record)
    if field.name not in NOT_PLAIN
}


@pytest.fixture(scope="module")
def read_by_library() -> Callable[[list[str]], PlainServe]:
    """Read words after ``serve`` as the library does."""
    app = build_app(["serve"])
    found: list[PlainServe] = []

    def record(engine: EngineConfig, settings: ServerSettings, _child: EngineChild | None) -> None:
        found.append(PlainServe(engine, settings))

    def read(words: list[str]) -> PlainServe:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("chairlift.cli.serve.serve_model", record)
            app(["serve", *words], standalone_mode=False)
        return found.pop()

    return read


@pytest.mark.parametrize("name", PLAIN)
def test_every_flag_of_one_value_is_read_as_by_the_library(
    name: str, read_by_library: Callable[[list[str]], PlainServe]
) -> None:
    plain = read_plain_serve(PLAIN[name], {})
    assert plain == read_by_library(PLAIN[name])
    assert plain != read_plain_serve([], {})


@given(
    names=st.lists(st.sampled_from(sorted(PLAIN)), max_size=5, unique=True),
    model=st.sampled_from([[], ["./model.gguf"], ["org/name:file.gguf"]]),
    joined=st.booleans(),
    place=st.integers(0, 5),
)
@settings(max_examples=25, deadline=None)
def test_what_is_read_plainly_is_read_the_same_by_the_library(
    read_by_library: Callable[[list[str]], PlainServe],
    names: list[str],
    model: list[str],
    joined: bool,
    place: int,
) -> None:
    pieces = [["=".join(PLAIN[name])] if joined else PLAIN[name] for name in names]
    pieces.insert(place, model)
    words = [word for piece in pieces for word in piece]
    plain = read_plain_serve(words, {})
    if plain is not None:  # two settings may exclude each other
        assert plain == read_by_library(words)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["--"],
        ["--unheard-of", "1"],
        ["--port"],
        ["--port", "many"],
        ["--port", "-1"],
        ["--port", "1_0"],
        ["--port", "70000"],
        ["--port", "1", "--port", "2"],
        ["--max-num-seqs", "1e2"],
        ["--dtype", "float16"],
        ["--host="],
        ["--host", "--port"],
        ["--access-log=yes"],
        ["--no-access-log"],
        ["--no-port", "1"],
        ["--api-key", "secret"],
        ["--tenants-file", "tenants.toml"],
        ["one.gguf", "two.gguf"],
        ["--model", "one.gguf"],
        ["--cache", "1"],
    ],
    ids=" ".join,
)
def test_all_else_is_left_to_the_library(words: list[str]) -> None:
    assert read_plain_serve(words, {}) is None


@pytest.mark.parametrize("name", ["MODEL", "MAX_NUM_SEQS", "TENANTS_FILE", "API_KEY"])
def test_flags_in_the_environment_are_left_to_the_library(name: str) -> None:
    assert read_plain_serve([], {f"CHAIRLIFT_{name}": "7"}) is None


def test_variables_that_set_no_flag_do_not_matter() -> None:
    environment = {"CHAIRLIFT_PORT": "tcp://10.0.0.1:80", "CHAIRLIFT_CACHE": "/tmp/c", "HOME": "/"}
    assert read_plain_serve(["--port", "9"], environment) == read_plain_serve(["--port", "9"], {})


def test_a_plain_start_does_not_import_the_library() -> None:
    code = (
        "import sys\nimport chairlift.cli.serving as serving\n"
        "serving.serve_model = lambda engine, settings, child: print(engine.scheduler.max_num_seqs,"
        " settings.port, 'typer' in sys.modules)\n"
        "from chairlift.cli.main import main\nmain(['serve', '--max-num-seqs', '7', '--port=9'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "7 9 False\n")
