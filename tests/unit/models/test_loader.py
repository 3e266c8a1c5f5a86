"""What users may call a model, what it is then called, and how little loading it costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.models.gguf_builder import write_gguf

from chairlift.errors import ModelLoadError
from chairlift.models.loader import DEFAULT_MODEL, load_model
from chairlift.models.pull import is_local, locate, pull


@pytest.fixture
def gguf_path(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.Q8_0.gguf")


def refusal(model: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_gguf_file_is_called_by_its_name_without_the_ending(gguf_path: Path) -> None:
    model = load_model(str(gguf_path))
    assert (model.name, model.path) == ("tiny.Q8_0", gguf_path)


def test_a_folder_is_called_by_its_name(random_model_path: Path) -> None:
    model = load_model(f"{random_model_path}/")
    assert (model.name, model.path) == (random_model_path.name, random_model_path)


def test_a_folder_with_one_gguf_file_is_that_file(gguf_path: Path) -> None:
    assert load_model(str(gguf_path.parent)).path == gguf_path


def test_a_folder_with_several_gguf_files_asks_for_one(gguf_path: Path) -> None:
    shutil.copy(gguf_path, gguf_path.with_name("other.gguf"))
    assert "holds 2 .gguf files, such as other.gguf" in refusal(str(gguf_path.parent))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    assert "holds neither a config.json nor a .gguf file" in refusal(str(tmp_path))


def test_the_home_folder_may_be_a_tilde(gguf_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(gguf_path.parent))
    assert load_model("~/tiny.Q8_0.gguf").path == gguf_path


def test_a_relative_path_wins_over_a_hugging_face_id(
    gguf_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org").mkdir()
    gguf_path.rename(tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)
    assert is_local("org/name")
    assert load_model("org/name").name == "name"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "there is no model ''"),
        ("smollm", "there is no model 'smollm': give smollm2-135m, the path of a .gguf file"),
        ("./none", "there is no file or folder './none': check the path"),
        ("none.gguf", "there is no file or folder 'none.gguf': check the path"),
        ("/no/such/folder", "there is no file or folder '/no/such/folder'"),
        ("a/b/c", "there is no file or folder 'a/b/c'"),
        ("nul\0byte", "there is no model 'nul\\x00byte'"),
        ("x" * 5000, "there is no model"),
        ("~nobody-of-this-name/model.gguf", "there is no file or folder '~nobody"),
    ],
)
def test_a_name_that_means_nothing_is_explained(model: str, message: str) -> None:
    assert message in refusal(model)


def test_pulling_or_locating_a_path_gives_it_back(gguf_path: Path) -> None:
    assert pull(str(gguf_path)) == gguf_path
    assert locate(str(gguf_path)) == gguf_path


def test_an_alias_is_never_taken_for_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / DEFAULT_MODEL).mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_local(DEFAULT_MODEL)


def test_a_broken_file_is_refused_before_its_weights_are_read(gguf_path: Path) -> None:
    gguf_path.write_bytes(gguf_path.read_bytes()[:-4000])
    assert "truncated" in refusal(str(gguf_path))


def test_loading_imports_nothing_that_is_slow_to_import() -> None:
    slow = ("huggingface_hub", "torch", "transformers", "jinja2", "gguf", "safetensors")
    modules = "chairlift.models.loader, chairlift.models.gguf_model, chairlift.models.hf_folder"
    script = f"import sys, {modules}; print(*set({slow}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.strip() == b""


@pytest.mark.e2e
def test_the_default_model_is_what_its_card_says() -> None:
    model = load_model()
    spec = model.spec
    assert model.name == "smollm2-135m"
    assert (spec.num_layers, spec.hidden_size, spec.vocab_size) == (30, 576, 49152)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (9, 3, 64)
    assert spec.tie_word_embeddings
    assert spec.num_parameters == 134_515_008
    assert (model.quantization, model.size_bytes) == ("Q4_1, Q8_0, F32", 98_362_432)
    assert model.generation.eos_token_ids == (2,)
