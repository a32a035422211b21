"""The settings of a node, seen from outside: `config show`, `config check`."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.output import write_json, write_table
from penstock.cli.setting_options import SettingsCommand, config_option, load_settings
from penstock.settings import check_exposure, describe, render_toml


@click.group()
def config() -> None:
    """Show and check the settings of a node.

    They come from a TOML file, then from PENSTOCK_* variables, then from options: what comes later wins.
    """


@config.command(cls=SettingsCommand)
@config_option
@click.option("--toml", "as_toml", is_flag=True, help="Write a settings file, with the meaning of each.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, one line for each setting.")
def show(config_path: str | None, as_toml: bool, as_json: bool, **options: Any) -> None:
    """Show every setting in force, and where it came from."""
    if as_toml and as_json:
        raise click.UsageError("Give --toml or --json, not both.")
    settings = load_settings(config_path, options)
    if as_toml:
        click.echo(render_toml(settings), nl=False)
    elif as_json:
        for line in describe(settings):
            source = {"kind": line.source.kind, "name": line.source.name}
            write_json({"key": line.key, "value": line.value, "source": source})
    else:
        rows = [(line.key, line.text, str(line.source)) for line in describe(settings)]
        write_table(("SETTING", "VALUE", "FROM"), rows)


@config.command(cls=SettingsCommand)
@config_option
def check(config_path: str | None, **options: Any) -> None:
    """Check the settings as `penstock serve` would.

    If a node could not start with them, the exit code is 2. Nothing is opened or written.
    """
    settings = load_settings(config_path, options)
    check_exposure(settings)
    click.echo("the settings are in order")
