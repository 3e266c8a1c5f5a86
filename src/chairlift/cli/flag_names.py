"""What the flag and the variable of a field are called."""

from __future__ import annotations

ENVIRONMENT_PREFIX = "CHAIRLIFT_"
# Kubernetes sets CHAIRLIFT_PORT=tcp://... in every pod beside a service named chairlift.
NOT_FROM_ENVIRONMENT = frozenset({"port"})


def flag_name(field_name: str) -> str:
    """The flag that sets a field; times lose the unit of their field: it is in the help text."""
    return "--" + field_name.removesuffix("_s").replace("_", "-")


def variable(field_name: str) -> str:
    """The variable that sets a field, if it is not one of ``NOT_FROM_ENVIRONMENT``."""
    return ENVIRONMENT_PREFIX + field_name.upper()
