"""`penstock completion`: the script that lets a shell complete commands, options and queue names."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

COMPLETE_VARIABLE: Final = "_PENSTOCK_COMPLETE"
"""What click looks at; not PENSTOCK_*, which are settings."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands.

    \b
    bash   add to ~/.bashrc:   eval "$(penstock completion bash)"
    zsh    add to ~/.zshrc:    eval "$(penstock completion zsh)"
    fish   once:               penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, f"click has no completion for {shell}"
    click.echo(kind(ctx.find_root().command, {}, "penstock", COMPLETE_VARIABLE).source())
