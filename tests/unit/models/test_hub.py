"""Hugging Face ids against a stand-in for the hub, each in a fresh process with its environment.

A process, because the library reads its variables once, when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.models.gguf_builder import write_gguf
from tests.unit.models.hub_server import COMMIT, Hub, serve

# Prints the path, or the error's message after "error: ", or fails with a traceback.
SCRIPT = """
import sys
from chairlift.errors import ModelLoadError
from chairlift.models.loader import load_model
from chairlift.models.pull import locate, pull
seen = []
try:
    action, model = sys.argv[1:]
    if action == "load":
        print(load_model(model).name)
    else:
        print({"pull": pull, "locate": locate}[action](model, seen.append))
except ModelLoadError as error:
    print("error:", error)
if seen:
    print("progress:", seen[-1].what, seen[-1].done_bytes, seen[-1].total_bytes)
"""


@pytest.fixture(scope="module")
def repositories(
    random_model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, bytes]]:
    folder = {f.name: f.read_bytes() for f in random_model_path.iterdir() if f.is_file()}
    gguf = write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf").read_bytes()
    return {
        "org/model": folder | {"pytorch_model.bin": b"x", "onnx/model.safetensors": b"x"},
        "org/gguf": {"README.md": b"x", "tiny.Q4_0.gguf": gguf, "sub/tiny.Q8_0.gguf": gguf},
        "org/old": {name: data for name, data in folder.items() if "safetensors" not in name},
        "org/gated": folder,
    }


@pytest.fixture
def hub(repositories: dict[str, dict[str, bytes]]) -> Iterator[Hub]:
    with serve(Hub(repositories, gated=frozenset({"org/gated"}))) as running:
        yield running


def run(hub: Hub, home: Path, action: str, model: str, **variables: str) -> list[str]:
    """Lines that the script prints with a hub, a cache folder and more variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home)} | variables
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", SCRIPT, action, model],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def error(lines: list[str]) -> str:
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def test_a_model_is_downloaded_once_and_only_what_loading_reads(hub: Hub, tmp_path: Path) -> None:
    path, progress = run(hub, tmp_path, "pull", "org/model")
    assert progress.startswith("progress: downloading org/model ")
    names = {f.name for f in Path(path).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"pytorch_model.bin", "onnx"}
    hub.requests.clear()
    assert run(hub, tmp_path, "load", "org/model") == ["org/model"]
    assert hub.requests == []


def test_a_gguf_file_of_a_repository_is_downloaded_alone(hub: Hub, tmp_path: Path) -> None:
    path, _ = run(hub, tmp_path, "locate", "org/gguf:tiny.Q4_0.gguf")
    assert Path(path).name == "tiny.Q4_0.gguf"
    assert not list(tmp_path.rglob("README.md"))
    assert run(hub, tmp_path, "load", "org/gguf:tiny.Q4_0.gguf") == ["org/gguf:tiny.Q4_0.gguf"]


def test_offline_what_is_cached_is_found_without_asking(hub: Hub, tmp_path: Path) -> None:
    path = run(hub, tmp_path, "pull", "org/model")[0]
    hub.requests.clear()
    assert run(hub, tmp_path, "locate", "org/model", HF_HUB_OFFLINE="1") == [path]
    assert run(hub, tmp_path, "pull", "org/model", HF_HUB_OFFLINE="1") == [path]
    assert hub.requests == []


@pytest.mark.parametrize("model", ["org/model", "org/gguf:tiny.Q4_0.gguf"])
def test_offline_what_is_not_cached_is_explained(hub: Hub, tmp_path: Path, model: str) -> None:
    message = error(run(hub, tmp_path, "locate", model, HF_HUB_OFFLINE="1"))
    assert f"{model} is not in the local cache, and HF_HUB_OFFLINE forbids" in message
    assert hub.requests == []


def test_a_cached_model_that_lacks_a_file_is_completed(hub: Hub, tmp_path: Path) -> None:
    path = Path(run(hub, tmp_path, "pull", "org/model")[0])
    (path / "model.safetensors").unlink()
    assert run(hub, tmp_path, "locate", "org/model")[0] == str(path)
    assert (path / "model.safetensors").exists()


def test_the_cached_model_is_used_when_the_hub_fails(hub: Hub, tmp_path: Path) -> None:
    path = run(hub, tmp_path, "pull", "org/model")[0]
    hub.failing = True
    assert run(hub, tmp_path, "locate", "org/model") == [path]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("org/none", "org/none does not exist or is private: check the id, and set HF_TOKEN"),
        ("org/none:x.gguf", "org/none:x.gguf does not exist or is private"),
        ("org/gguf:other.gguf", "org/gguf:other.gguf does not exist in its repository"),
        ("org/gated", "org/gated is gated: accept its terms on its page, then set HF_TOKEN"),
        ("org/gguf", "org/gguf holds GGUF files: name one of them, such as org/gguf:tiny.Q4_0"),
        ("org/old", "org/old lacks model.safetensors, so it is not a model in Hugging Face"),
        ("org/a..b", "org/a..b is not a valid Hugging Face id"),
    ],
)
def test_what_cannot_be_had_is_explained(
    hub: Hub, tmp_path: Path, model: str, message: str
) -> None:
    assert message in error(run(hub, tmp_path, "pull", model)[:1])


def test_a_token_opens_a_gated_model(hub: Hub, tmp_path: Path) -> None:
    path = run(hub, tmp_path, "pull", "org/gated", HF_TOKEN=hub.token)[0]
    assert Path(path).name == COMMIT


def test_a_hub_out_of_reach_is_explained(
    repositories: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    with serve(Hub(repositories)) as gone:
        pass
    message = error(run(gone, tmp_path, "pull", "org/model"))
    assert f"org/model cannot be fetched from {gone.url}" in message
    assert "check the network, HF_ENDPOINT and the proxy settings" in message


def test_a_failing_hub_is_explained(hub: Hub, tmp_path: Path) -> None:
    hub.failing = True
    assert "the hub answered 500, try later" in error(run(hub, tmp_path, "pull", "org/model"))


def test_a_cache_that_cannot_be_written_is_named(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = error(run(hub, tmp_path / "file" / "home", "pull", "org/model"))
    assert "set HF_HOME" in message
