"""Reaching a node: the options that every command of a client takes, and the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from penstock import __version__
from penstock.cli.parameters import QUEUE

if TYPE_CHECKING:
    from penstock.client.sync import Client

URL_VARIABLE: Final = "PENSTOCK_URL"
DEFAULT_URL: Final = "penstock://127.0.0.1:2602"
"""As `penstock.client` has it, which takes too long to import for the sake of a help text."""

_RETRY_TIMEOUT_SECONDS: Final = 10.0
_Function = TypeVar("_Function", bound=Callable[..., Any])


def client_options(function: _Function) -> _Function:
    """Options of a command that talks to a node: `url` and `as_json`."""
    url = click.option(
        "--url",
        envvar=URL_VARIABLE,
        metavar="URL",
        help=f"Where the node is; several with commas. [variable {URL_VARIABLE}, else {DEFAULT_URL}]",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON, one line for each item.")
    return url(as_json(function))


def queue_argument(function: _Function) -> _Function:
    """The argument `queue`, by name."""
    return click.argument("queue", type=QUEUE, metavar="QUEUE")(function)


@contextmanager
def connected(url: str | None, *, connect_timeout: float = 5.0) -> Iterator[Client]:
    """A blocking client, connected to the node; its errors are explained where the command ends."""
    from penstock.client import connect_sync

    with connect_sync(
        url or DEFAULT_URL,
        name=client_name(),
        connect_timeout=connect_timeout,
        retry_timeout=_RETRY_TIMEOUT_SECONDS,
    ) as client:
        yield client


def client_name() -> str:
    """What nodes are told of who connects."""
    return f"penstock-cli/{__version__}"
