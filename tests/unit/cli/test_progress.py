"""Progress of downloads: lines in a log, a bar on a terminal, nothing when nothing is fetched."""

from __future__ import annotations

import sys

import pytest

from chairlift.cli.progress import download_progress
from chairlift.models.progress import PullProgress


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
