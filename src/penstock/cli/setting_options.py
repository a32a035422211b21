"""The settings of a node as options of a command, derived from the one schema."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock.settings import Field, Settings, all_fields, format_value, load

_HEADINGS: Final = {
    "": "Settings",
    "storage": "Storage",
    "limits": "Limits",
    "taskflux": "TaskFlux door",
    "etzel": "Etzel door",
    "monique": "MoniQue door",
}


class SettingOption(click.Option):
    """An option that sets one field; its text goes to the settings as it was typed."""

    def __init__(self, field: Field) -> None:
        self.field = field
        is_flag = field.flag_off is not None
        super().__init__(
            [f"{field.flag}/{field.flag_off}" if is_flag else field.flag, field.parameter],
            default=None,
            type=click.BOOL if is_flag else click.STRING,
            metavar=None if is_flag else field.metavar,
            help=f"{field.help}.  [{_shown_default(field)}]",
        )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The choices of a field that has some."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(choice) for choice in self.field.choices if choice.startswith(incomplete)]


def _shown_default(field: Field) -> str:
    default = format_value(field, field.default).strip('"')
    return f"default: {default}" if default else "default: none"


class SettingsCommand(click.Command):
    """A command that takes all settings as options, shown under one heading for each table of the schema."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [SettingOption(field) for field in all_fields()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            written = parameter.get_help_record(ctx)
            if written is None:
                continue
            heading = "Options"
            if isinstance(parameter, SettingOption):
                table = parameter.field.key.rpartition(".")[0]
                heading = _HEADINGS.get(table, table)
            sections.setdefault(heading, []).append(written)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def config_option(function: Any) -> Any:
    """The option `config_path`, which names the settings file."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(),
        help="The settings file, in TOML.  [variable PENSTOCK_CONFIG, else penstock.toml if there is one]",
    )(function)


def load_settings(config_path: str | None, options: Mapping[str, Any]) -> Settings:
    """The settings from the file, the variables of this process, and the options of the command line."""
    flags = {field.key: options[field.parameter] for field in all_fields()}
    return load(config_path, os.environ, flags)
