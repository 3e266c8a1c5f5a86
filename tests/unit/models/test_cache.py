"""Where fetched models are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from chairlift.errors import ModelLoadError
from chairlift.models.cache import cache_dir


def test_the_own_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("CHAIRLIFT_CACHE", "/own")
    assert cache_dir() == Path("/own")


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("CHAIRLIFT_CACHE", "~/models")
    assert cache_dir() == Path("/home/somebody/models")


def test_the_desktop_s_cache_folder_comes_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAIRLIFT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/chairlift")


def test_the_home_folder_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAIRLIFT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_dir() == Path("/home/somebody/.cache/chairlift")


def test_without_a_home_folder_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAIRLIFT_CACHE", "~nobody-of-this-name/models")
    with pytest.raises(ModelLoadError, match="set CHAIRLIFT_CACHE to a folder"):
        cache_dir()
