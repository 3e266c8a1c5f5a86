"""Command-line flags made from the fields of the records they set.

A field of ``EngineConfig``, ``SamplingParams`` or ``ServerSettings`` is described once, in the
``Attributes`` of its class. Name, type, default and help text of the flag all come from there, so
that a flag, the Python argument and the page generated from ``--help`` cannot say different things.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from chairlift.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from chairlift.engine.options import engine_config
from chairlift.errors import InvalidParameterError
from chairlift.sampling_params import SamplingParams
from chairlift.server.settings import ServerSettings

ENVIRONMENT_PREFIX = "CHAIRLIFT_"
# Kubernetes sets CHAIRLIFT_PORT=tcp://... in every pod beside a service named chairlift.
NOT_FROM_ENVIRONMENT = frozenset({"port"})

Command = Callable[..., None]
Values = Mapping[str, Any]

_RECORDS = (
    ModelConfig,
    SchedulerConfig,
    CacheConfig,
    EngineConfig,
    SamplingParams,
    ServerSettings,
)
_FIELD_NAMES = frozenset(field.name for record in _RECORDS for field in dataclasses.fields(record))
_ATTRIBUTE = re.compile(r"^    ([a-z_0-9]+(?:, [a-z_0-9]+)*): (.*)$")


def field_help(record: type) -> dict[str, str]:
    """Read what the ``Attributes`` section of a dataclass's docstring says about each field.

    Args:
        record: A class with a docstring in Google style.

    Returns:
        The text of each field as one line, for the command line: names in double backticks become
        flags where they are fields, and are otherwise left bare; ``None`` is "not set".
    """
    texts: dict[str, list[str]] = {}
    current: list[str] | None = None
    section = (inspect.getdoc(record) or "").partition("\nAttributes:\n")[2]
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        if found := _ATTRIBUTE.match(line):
            current = [found[2]]
            texts |= {name.strip(): current for name in found[1].split(",")}
        elif current is not None:
            current.append(line.strip())
    return {name: _plain(" ".join(lines)).strip() for name, lines in texts.items()}


def _plain(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        return _flag_name(found[1]) if found[1] in _FIELD_NAMES else found[1]

    return re.sub(r"``(.*?)``", replace, text.replace("``None``", "not set"))


def flags_of(
    record: type,
    *,
    panel: str,
    defaults: Values | None = None,
    skip: Iterable[str] = (),
    environment: bool = False,
) -> list[inspect.Parameter]:
    """Describe one flag for each field of a dataclass, in the order of the fields.

    Args:
        record: The dataclass. Fields of several values become flags that can be repeated.
        panel: Heading of these flags in the help.
        defaults: Values that this command uses instead of the fields' own.
        skip: Fields without a flag.
        environment: Let ``CHAIRLIFT_{FIELD}`` set the default (of all but ``port``).
    """
    help_texts, types = field_help(record), get_type_hints(record)
    flags = []
    for field in dataclasses.fields(record):
        if field.name in skip or dataclasses.is_dataclass(types[field.name]):
            continue
        default = (defaults or {}).get(field.name, field.default)
        annotation = _flag_type(types[field.name])
        option = typer.Option(
            _flag_declaration(field.name, default),
            help=help_texts[field.name],
            metavar=_metavar(annotation),
            envvar=_variable(field.name) if environment else None,
            show_envvar=False,
            show_default=default not in (None, (), "", False),
            rich_help_panel=panel,
        )
        flags.append(_parameter(field.name, Annotated[annotation, option], default))
    return flags


def _flag_name(field_name: str) -> str:
    """Times lose the unit of their field: it is in the help text."""
    return "--" + field_name.removesuffix("_s").replace("_", "-")


def _flag_declaration(name: str, default: object) -> str:
    flag = _flag_name(name)
    return f"{flag}/--no-{flag[2:]}" if default is True else flag


def _variable(field_name: str) -> str | None:
    if field_name in NOT_FROM_ENVIRONMENT:
        return None
    return ENVIRONMENT_PREFIX + field_name.upper()


def _flag_type(annotation: Any) -> Any:
    if get_origin(annotation) is tuple:
        return list[get_args(annotation)[0]]  # type: ignore[misc]
    if any(get_origin(option) is Mapping for option in get_args(annotation)):
        return list[str]
    return annotation


def _metavar(annotation: Any) -> str | None:
    if get_origin(annotation) is list:
        return f"<{get_args(annotation)[0].__name__}>..."
    return None


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    if default == () or (default is None and get_origin(get_args(annotation)[0]) is list):
        default = []
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def with_flags(
    argument: str, flags: list[inspect.Parameter], build: Callable[[Values], object]
) -> Callable[[Command], Command]:
    """Give a command more flags, and pass it what they add up to as one argument.

    Args:
        argument: Name of the command's parameter that takes the result of ``build``.
        flags: The flags; their names must not collide with the command's own parameters.
        build: Makes the record out of the flags' values.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            chosen = {flag.name: values.pop(flag.name) for flag in flags}
            command(**values, **{argument: build(chosen)})

        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != argument]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + flags
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def engine_options(
    defaults: Values | None = None, *, environment: bool = True
) -> Callable[[Command], Command]:
    """Give a command one flag per field of :class:`EngineConfig` but the model's name.

    The command must have a parameter ``model`` and takes the result as ``config``, a function from
    the model's name to the :class:`EngineConfig`.

    Args:
        defaults: Values of the scheduler's settings that this command uses instead of their own.
        environment: Let variables set defaults, as :func:`flags_of`.
    """
    flags = [
        *flags_of(ModelConfig, panel="Model", skip=["model"], environment=environment),
        *flags_of(
            SchedulerConfig,
            panel="Scheduler",
            defaults=defaults,
            skip=["tenants"],
            environment=environment,
        ),
        *flags_of(CacheConfig, panel="KV cache", environment=environment),
        *flags_of(EngineConfig, panel="Machine", environment=environment),
    ]
    return with_flags("config", flags, lambda values: functools.partial(engine_config, **values))


def server_options() -> Callable[[Command], Command]:
    """Give a command one flag per field of :class:`ServerSettings`, passed as ``settings``."""
    flags = flags_of(ServerSettings, panel="Server", skip=["tenants"], environment=True)
    return with_flags("settings", flags, server_settings)


def server_settings(values: Values) -> ServerSettings:
    """Build the server's settings out of the values of flags.

    Raises:
        ConfigError: A value is out of its bounds.
    """
    return ServerSettings(**_tuples(values))


def _tuples(values: Values) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def sampling_options(*, defaults: Values, skip: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Give a command one flag per field of :class:`SamplingParams`, passed as ``sampling``.

    Args:
        defaults: Values that this command uses instead of the fields' own.
        skip: Fields without a flag.
    """
    flags = flags_of(SamplingParams, panel="Sampling", defaults=defaults, skip=skip)
    return with_flags("sampling", flags, sampling_params)


def sampling_params(values: Values) -> SamplingParams:
    """Build sampling parameters out of the values of flags.

    Raises:
        InvalidParameterError: A value is out of its bounds, or ``logit_bias`` is not ``ID=VALUE``.
    """
    chosen = dict(values)
    if "logit_bias" in chosen:
        chosen["logit_bias"] = _parse_logit_bias(chosen["logit_bias"])
    return SamplingParams(**_tuples(chosen))


def _parse_logit_bias(items: Iterable[str]) -> dict[int, float] | None:
    biases = {}
    for item in items:
        token_id, _, bias = item.partition("=")
        try:
            biases[int(token_id)] = float(bias)
        except ValueError:
            raise InvalidParameterError(
                f"--logit-bias must be ID=VALUE, as in --logit-bias 42=-100, got {item!r}",
                param="logit_bias",
            ) from None
    return biases or None
