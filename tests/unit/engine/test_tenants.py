"""What a tenants file may hold, and what its errors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from chairlift.config import TenantConfig
from chairlift.engine.tenants import KeyRing, Tenant, read_tenants
from chairlift.errors import ConfigError, InvalidParameterError
from chairlift.inputs import Account
from chairlift.server.settings import ServerSettings

GOOD = """
[[tenant]]
name = "search"
api_keys = ["key-1", "key-2"]
weight = 3
priority_ceiling = -5
max_running = 8
max_queued = 20
tokens_per_minute = 60000

[[tenant]]
name = "batch"
api_keys = ["key-3"]
"""


def file_of(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "tenants.toml"
    path.write_text(content)
    return path


def test_a_file_gives_its_tenants_with_defaults(tmp_path: Path) -> None:
    assert read_tenants(file_of(tmp_path, GOOD)) == (
        Tenant("search", ("key-1", "key-2"), 3, -5, 8, 20, 60000),
        Tenant("batch", ("key-3",), 1.0, -1000, 0, 0, 0),
    )


def test_the_scheduler_learns_weight_and_running_limit(tmp_path: Path) -> None:
    first = read_tenants(file_of(tmp_path, GOOD))[0]
    assert first.scheduler_config == TenantConfig("search", weight=3.0, max_running=8)


ONE = '[[tenant]]\nname = "a"\napi_keys = ["k"]\n'


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["[[tenant]]", "none"]),
        ("tenants = 1", ["[[tenant]]", "tenants"]),
        ("tenant = 1", ["[[tenant]]"]),
        ("[tenant", ["TOML"]),
        ('[[tenant]]\napi_keys = ["k"]', ["tenant 1", "name is required"]),
        ('[[tenant]]\nname = "a"', ["'a'", "api_keys is required"]),
        ('[[tenant]]\nname = "a"\napi_keys = []', ["'a'", "api_keys", "at least one"]),
        ('[[tenant]]\nname = "a"\napi_keys = "k"', ["'a'", "api_keys", "list", "'k'"]),
        ('[[tenant]]\nname = "a"\napi_keys = [""]', ["'a'", "api_keys", "empty"]),
        ('[[tenant]]\nname = ""\napi_keys = ["k"]', ["name", "''"]),
        ('[[tenant]]\nname = 5\napi_keys = ["k"]', ["tenant 1", "name", "5"]),
        (ONE + "weight = 0", ["'a'", "weight", "above 0"]),
        (ONE + 'weight = "x"', ["'a'", "weight", "'x'"]),
        (ONE + "weight = nan", ["'a'", "weight", "nan"]),
        (ONE + "priority_ceiling = -1001", ["priority_ceiling", "-1001", "-1000 to 1000"]),
        (ONE + "max_queued = -1", ["max_queued", "-1", "from 0"]),
        (ONE + "max_running = true", ["max_running", "True", "integer"]),
        (ONE + "tokens_per_minute = 1.5", ["tokens_per_minute", "1.5", "integer"]),
        (ONE + "max_wait = 1", ["'a'", "max_wait", "max_queued"]),
        (ONE + ONE, ["'a'", "2 times"]),
        (ONE + '[[tenant]]\nname = "b"\napi_keys = ["k"]', ["'b'", "api_keys", "in use"]),
    ],
)
def test_a_broken_file_is_refused_in_one_line(
    tmp_path: Path, content: str, words: list[str]
) -> None:
    path = file_of(tmp_path, content)
    with pytest.raises(ConfigError) as raised:
        read_tenants(path)
    message = str(raised.value)
    assert [word for word in [*words, str(path)] if word not in message] == []
    assert "\n" not in message


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        read_tenants(tmp_path / "nowhere.toml")


def test_a_key_belongs_to_its_tenant_alone() -> None:
    ring = KeyRing(("common",), (Tenant("a", ("one", "two")), Tenant("b", ("three",))))
    owners = [ring.owner(key) for key in ("common", "one", "two", "three", "four", "")]
    assert owners == ["", "a", "a", "b", None, None]


def test_a_common_key_cannot_be_a_tenant_s_too() -> None:
    with pytest.raises(ConfigError, match="'a': a key is in use"):
        ServerSettings(api_key=("k",), tenants=(Tenant("a", ("k",)),))


def test_a_priority_above_the_ceiling_is_refused_and_names_it() -> None:
    tenant = Tenant("a", ("k",), priority_ceiling=2)
    with pytest.raises(InvalidParameterError, match=r"at least 2 for tenant 'a'.*got 1"):
        tenant.account(1)


@pytest.mark.parametrize(("ceiling", "given"), [(-5, 0), (0, 0), (7, 7)])
def test_without_a_priority_a_request_gets_zero_or_its_ceiling(ceiling: int, given: int) -> None:
    assert Tenant("a", ("k",), priority_ceiling=ceiling).account(None) == Account("a", given)
