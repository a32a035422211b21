"""`penstock serve`: run a node until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from penstock import __version__
from penstock.cli.connecting import DEFAULT_URL
from penstock.cli.errors import NODE_FAILED
from penstock.cli.logs import set_up_logging
from penstock.cli.logwriter import can_write
from penstock.cli.setting_options import SettingsCommand, config_option, load_settings
from penstock.doors.listening import Listener
from penstock.doors.server import Server
from penstock.node.errors import NodeFailed
from penstock.settings import Settings

log = logging.getLogger(__name__)

_MODES: Final = {
    "durable": "an answer is given when the log is synced",
    "interval": "answers come before the sync; a power loss can take the last {interval_ms} ms",
    "none": "the system syncs when it likes; a power loss can take what was answered",
}
STOP_S_MAX: Final = 60.0
"""A stop takes longer than this only if a call of the system does not return."""
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Companion(Protocol):
    """What runs beside a node: from when the doors are open until the node is told to stop."""

    def announce(self, server: Server) -> Iterator[str]:
        """Its lines in the node's announcement."""
        ...

    async def run(self, server: Server) -> None:
        """Do its work; cancelled when the node stops, which waits for its end."""
        ...


def skip_option(function: Any) -> Any:
    """The option `skip_entries`: what an operator decides when an entry cannot be applied."""
    return click.option(
        "--skip-entry",
        "skip_entries",
        type=click.IntRange(min=0),
        multiple=True,
        metavar="INDEX",
        help="Do not apply this entry of the log, now and at every later start. What its commands did is lost. "
        "For a start that fails at an entry (repeatable).",
    )(function)


@click.command(cls=SettingsCommand)
@config_option
@skip_option
def serve(config_path: str | None, skip_entries: tuple[int, ...], **options: Any) -> None:
    """Run a node.

    It writes where each door listens, and "Penstock ... is ready." once it serves. SIGTERM and SIGINT (Ctrl-C) stop it:
    what is in flight is finished first, within a bounded time; a second signal ends it at once. The exit code is 0
    after a stop, 2 for invalid settings, 1 if the node cannot start (files, ports), 70 if it failed while it served or
    stopped (disk, an error of the program).
    """
    run_node(load_settings(config_path, options), skip_entries=skip_entries)


def run_node(
    settings: Settings,
    companion: Companion | None = None,
    *,
    may_close_doors: bool = False,
    skip_entries: Sequence[int] = (),
) -> None:
    """Run a node, and what is to run beside it, until a signal stops them.

    With ``may_close_doors`` a door whose default port is taken stays closed; else the start is refused.
    """
    set_up_logging(settings.log_level, settings.log_format)
    companions = [] if companion is None else [companion]
    if settings.storage.parquet:
        from penstock.cli.parquet import ParquetBeside

        companions.append(ParquetBeside(settings))
    last_resort = LastResort()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            options = {"may_close_doors": may_close_doors, "skip_entries": skip_entries}
            runner.run(_serve(settings, companions, last_resort, **options))
    except NodeFailed as failure:
        if can_write(sys.stderr):
            raise
        raise click.exceptions.Exit(NODE_FAILED) from failure  # nobody reads, and the message must not hold it up
    finally:
        last_resort.disarm()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed, since it costs less; None leaves it to asyncio."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve(settings: Settings, companions: Sequence[Companion], last_resort: LastResort, **options: Any) -> None:
    server = Server(settings, **options)
    await server.start()
    beside: list[asyncio.Task[None]] = []
    try:
        stop = _stop_signal()
        click.echo("\n".join(announcement(server, companions)))
        sys.stdout.flush()
        beside += [asyncio.create_task(each.run(server)) for each in companions]
        either: set[asyncio.Future[Any]] = {stop, server.node.failed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            log.info("%s: the node stops", stop.result())
    finally:
        _let_signals_kill()
        last_resort.arm()
        for task in beside:
            task.cancel()
        if beside:
            await asyncio.wait(beside)
        await server.stop()
    if server.node.failed.done():
        raise server.node.failed.result()


class LastResort:
    """Ends the process if a stop does not: a disk that hangs holds the loop or its threads, and nothing else helps."""

    def __init__(self) -> None:
        self._timer = threading.Timer(STOP_S_MAX, self._end)
        self._timer.daemon = True

    def arm(self) -> None:
        """A stop begins."""
        self._timer.start()

    def disarm(self) -> None:
        """The stop is over."""
        self._timer.cancel()

    def _end(self) -> None:
        log.critical(
            "the node did not stop within %g s, so the process ends; what was acknowledged is safe", STOP_S_MAX
        )
        logging.shutdown()
        os._exit(NODE_FAILED)


def _stop_signal() -> asyncio.Future[str]:
    """Done with the signal's name when one comes that asks to stop. A second one is not waited for: it kills."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        _let_signals_kill()
        if not stop.done():
            stop.set_result(number.name)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    return stop


def _let_signals_kill() -> None:
    """A stop has begun: what asks for one now is not waited for."""
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.remove_signal_handler(number)


def announcement(server: Server, companions: Sequence[Companion] = ()) -> Iterator[str]:
    """What a node says of itself when it is ready; its last line is the one that scripts wait for."""
    settings = server.settings
    for listener in server.listeners:
        address = _address(listener.host, listener.port)
        yield f"{listener.door:<9} {address}  {listener.purpose.replace('{address}', address)}".rstrip()
    for closed in server.closed_doors:
        yield f"{closed.door:<9} closed: port {closed.port} is taken; set {closed.key} to open it on another port"
    if not server.listeners:
        yield "doors     none is open"
    yield f"data      {Path(settings.data_dir).resolve()}"
    for companion in companions:
        yield from companion.announce(server)
    mode = settings.storage.mode
    yield f"mode      {mode}: {_MODES[mode].format(interval_ms=settings.storage.interval_ms)}"
    for note in server.notes:
        yield f"mended    {note}"
    native = native_listener(server)
    if native is not None:
        yield ""
        yield "Try it in another terminal:"
        yield from (f"  {line}" for line in _tries(native))
        yield ""
    yield f"Penstock {__version__} is ready."


def native_listener(server: Server) -> Listener | None:
    """Where the native protocol is spoken, if it is."""
    return next((listener for listener in server.listeners if listener.door == "taskflux"), None)


def own_endpoint(listener: Listener) -> str:
    """`host:port` by which a program on this machine reaches a listener."""
    return _address(_WILDCARDS.get(listener.host, listener.host), listener.port)


def _tries(listener: Listener) -> Iterator[str]:
    url = f"penstock://{own_endpoint(listener)}"
    command = own_command()
    if url != DEFAULT_URL:
        yield f"export PENSTOCK_URL={url}"
    yield f"{command} put greetings 'hello, world' --create"
    yield f"{command} take greetings --ack"
    yield f"{command} top"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def own_command() -> str:
    """How this program can be started again by who reads it: by name if the shell finds it, else as it was now."""
    started = Path(sys.argv[0])
    if started.name != "penstock":
        return "python -m penstock"
    found = shutil.which("penstock")
    return "penstock" if found is not None and Path(found).resolve() == started.resolve() else str(started)
