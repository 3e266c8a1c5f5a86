"""``chairlift timeline`` draws, writes JSON and SVG, and refuses what makes no sense."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from chairlift.cli import main as cli


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["timeline", *words])
    code = ended.value.code
    if not isinstance(code, int):
        raise AssertionError(f"exit code {code!r}")
    return code


def test_piped_output_is_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--lengths", "2,3,5,4,6,3", "--max-num-seqs", "3") == 0
    out = capsys.readouterr().out
    assert "slot 1  |AADDDD   |" in out
    assert "\x1b" not in out


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--lengths", "1,3,2,3", "--arrivals", "0,0,0,1", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data["modes"]) == ["static", "dynamic", "continuous"]
    assert data["modes"]["continuous"]["running"] == [3, 3, 2, 1]


def test_modes_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--modes", "continuous", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["modes"]) == ["continuous"]


def test_svg_is_written(tmp_path: Path) -> None:
    assert run("--svg", str(tmp_path / "t.svg")) == 0
    assert (tmp_path / "t.svg").read_text(encoding="utf-8").startswith("<svg ")


def test_a_workload_file_gives_lengths_and_arrivals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n10,9,3\n10.25,9,2\n")
    assert run("--workload", str(path), "--step-time", "0.1", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["lengths"], data["arrivals"]) == ([3, 2], [0, 2])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lengths", "2,x"), "lengths must be integers with commas between, got '2,x'"),
        (("--lengths", "0"), "lengths must be numbers of at least 1, got 0"),
        (("--lengths", ""), "lengths must be integers"),
        (("--arrivals", "1"), "one step of at least 0 for each of the 6 lengths"),
        (("--max-num-seqs", "0"), "max_num_seqs must be at least 1, got 0"),
        (("--modes", "fast"), "modes must be some of static,dynamic,continuous, got 'fast'"),
        (("--workload", "missing.csv"), "No such file or directory"),
        (("--workload", "missing.csv", "--step-time", "0"), "step_time must be above 0 seconds"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("chairlift: error: ")
    assert message in lines[0]


def test_png_is_an_image_of_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    assert run("--lengths", "2,3", "--png", str(tmp_path / "t.png")) == 0
    data = (tmp_path / "t.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    assert width == 2 * 960
    assert height > 200


def test_png_without_the_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert run("--lengths", "2,3", "--png", str(tmp_path / "t.png")) == 2
    assert "pip install 'chairlift[plot]'" in capsys.readouterr().err
    assert not (tmp_path / "t.png").exists()
