"""Progress of downloads: lines in a log, a bar on a terminal, nothing when nothing is fetched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.cli.progress import download_progress, ensure_fetched
from chairlift.models.progress import ProgressCallback, PullProgress


def test_a_log_gets_one_line_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with download_progress() as report:
        report(PullProgress("downloading x", 0, None))
        report(PullProgress("downloading x", 50, 100))
        report(PullProgress("unpacking x", 0, 10))
    assert capsys.readouterr() == ("", "downloading x\nunpacking x\n")


def test_a_terminal_gets_a_bar_with_sizes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with download_progress() as report:
        report(PullProgress("downloading x", 512, 1024))
        report(PullProgress("downloading x", 1024, 1024))
    shown = capsys.readouterr().err
    assert "downloading x" in shown
    assert "1.0/1.0 KiB" in shown


def test_nothing_is_shown_when_nothing_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    with download_progress():
        pass
    assert capsys.readouterr() == ("", "")


def test_a_model_that_is_there_is_recognised_without_heavy_imports(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom chairlift.cli.progress import ensure_fetched\n"
        f"ensure_fetched({str(tmp_path)!r})\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"numpy", "rich", "chairlift.models.pull"} & set(done.stdout.split()) == set()


def test_a_model_that_is_not_there_is_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def locate(model: str, progress: ProgressCallback) -> Path:
        progress(PullProgress(f"downloading {model}", 0, None))
        return Path(model)

    monkeypatch.setattr("chairlift.models.pull.locate", locate)
    ensure_fetched("org/name")
    assert capsys.readouterr().err == "downloading org/name\n"
