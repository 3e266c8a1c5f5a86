"""How ``--help`` is laid out: plain text, flags under the headings of their panels."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

GENERAL_PANEL = "Options"


class GroupedCommand(TyperCommand):
    """A command whose help shows its flags in groups, in the order they were declared."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write one section per panel; arguments first, ungrouped flags before the groups."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], GENERAL_PANEL: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            is_argument = param.param_type_name == "argument"
            panel = getattr(param, "rich_help_panel", None) or GENERAL_PANEL
            panels.setdefault("Arguments" if is_argument else panel, []).append(record)
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)
