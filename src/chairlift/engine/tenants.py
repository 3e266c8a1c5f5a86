"""Who may use the server and how much: tenants and their API keys, from a TOML file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.config import TenantConfig
from chairlift.errors import ConfigError, InvalidParameterError
from chairlift.inputs import MAX_PRIORITY, Account

_MAX_NUMBER = 10**12


@dataclass(frozen=True, slots=True)
class Tenant:
    """One ``[[tenant]]`` of the file.

    Attributes:
        name: Unique.
        api_keys: Requests with one of them (``Authorization: Bearer KEY``) are this tenant's.
        weight: Share of service under the ``fair`` policy, relative to other tenants.
        priority_ceiling: Lowest, that is most urgent, ``priority`` its requests may ask for.
        max_running: Most of its choices running at once; 0: no limit of its own.
        max_queued: Most of its choices waiting for their first token; 0: no limit of its own.
        tokens_per_minute: Prompt and output tokens that it may use in the long run; as many may
            come at once after a pause. 0: no limit.
    """

    name: str
    api_keys: tuple[str, ...]
    weight: float = 1.0
    priority_ceiling: int = -MAX_PRIORITY
    max_running: int = 0
    max_queued: int = 0
    tokens_per_minute: int = 0

    def __post_init__(self) -> None:
        _check_text("name", self.name)
        if not self.api_keys:
            raise ConfigError("api_keys must hold at least one key, got none")
        for key in self.api_keys:
            _check_text("api_keys", key)
        _check_number("weight", self.weight, float, 0.0, 1e6)
        if self.weight == 0.0:
            raise ConfigError("weight must be above 0, got 0")
        _check_number("priority_ceiling", self.priority_ceiling, int, -MAX_PRIORITY, MAX_PRIORITY)
        for field in ("max_running", "max_queued", "tokens_per_minute"):
            _check_number(field, getattr(self, field), int, 0, _MAX_NUMBER)

    @property
    def scheduler_config(self) -> TenantConfig:
        """What the scheduler has to know."""
        return TenantConfig(self.name, float(self.weight), self.max_running)

    def account(self, priority: int | None) -> Account:
        """The account of a request of this tenant; without a priority, 0 or what comes closest.

        Raises:
            InvalidParameterError: The priority is out of bounds or above the tenant's ceiling.
        """
        if priority is None:
            return Account(self.name, max(0, self.priority_ceiling))
        if priority < self.priority_ceiling:
            raise InvalidParameterError(
                f"priority must be at least {self.priority_ceiling} for tenant {self.name!r} "
                f"(priority_ceiling; lower is more urgent), got {priority}",
                param="priority",
            )
        return Account(self.name, priority)


class KeyRing:
    """Finds out whose an API key is; it keeps only digests, whose comparison gives nothing away.

    Args:
        common_keys: Keys of no tenant's; their holders see the requests of all.

    Raises:
        ConfigError: Two have the same key.
    """

    def __init__(self, common_keys: Iterable[str], tenants: Iterable[Tenant]) -> None:
        self._owner_of: dict[bytes, str] = {_digest(key): "" for key in common_keys}
        for tenant in tenants:
            for key in tenant.api_keys:
                if self._owner_of.setdefault(_digest(key), tenant.name) != tenant.name:
                    raise ConfigError(
                        f"api_keys of tenant {tenant.name!r}: a key is in use already; give each "
                        "tenant keys of its own"
                    )

    def __bool__(self) -> bool:
        return bool(self._owner_of)

    def owner(self, key: str) -> str | None:
        """Name of the tenant whose key it is, empty for a common key; ``None``: not known."""
        return self._owner_of.get(_digest(key))


def read_tenants(path: Path) -> tuple[Tenant, ...]:
    """Read a tenants file.

    Raises:
        ConfigError: It is not there, is no TOML, or a value in it cannot work; the message names
            the tenant, the field, the value and the bound.
    """
    import tomllib  # most servers start without such a file

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"tenants file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"tenants file {path} is no TOML: {error}") from None
    try:
        return _tenants(content)
    except ConfigError as error:
        raise ConfigError(f"tenants file {path}: {error}") from None


def _tenants(content: Mapping[str, Any]) -> tuple[Tenant, ...]:
    tables = content.get("tenant")
    if set(content) != {"tenant"} or not isinstance(tables, list):
        raise ConfigError(
            f"it must hold [[tenant]] tables and nothing else, got {', '.join(content) or 'none'}"
        )
    tenants = tuple(_tenant(table, f"tenant {i}") for i, table in enumerate(tables, start=1))
    names = [tenant.name for tenant in tenants]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"name {name!r} is used {names.count(name)} times; names are unique")
    KeyRing((), tenants)
    return tenants


def _tenant(table: Any, place: str) -> Tenant:
    fields = Tenant.__dataclass_fields__
    if not isinstance(table, dict):
        raise ConfigError(f"{place} must be a [[tenant]] table, got {table!r}")
    if isinstance(table.get("name"), str):
        place = f"tenant {table['name']!r}"
    unknown = [name for name in table if name not in fields]
    if unknown:
        raise ConfigError(
            f"{place}: {unknown[0]} is not a field; the fields are {', '.join(fields)}"
        )
    for name in ("name", "api_keys"):
        if name not in table:
            raise ConfigError(f"{place}: {name} is required")
    keys = table["api_keys"]
    if not isinstance(keys, list):
        raise ConfigError(f"{place}: api_keys must be a list of strings, got {keys!r}")
    try:
        return Tenant(**table | {"api_keys": tuple(keys)})
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str) or not value or not value.isprintable() or value != value.strip():
        shown = repr(value) if field == "name" else "something else"
        raise ConfigError(f"{field} must be printable text, not empty, got {shown}")


def _check_number(field: str, value: object, kind: type, low: float, high: float) -> None:
    is_number = isinstance(value, int if kind is int else int | float)
    if isinstance(value, bool) or not is_number or not low <= value <= high:  # type: ignore[operator]
        noun = "an integer" if kind is int else "a number"
        raise ConfigError(f"{field} must be {noun} from {low:g} to {high:g}, got {value!r}")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
