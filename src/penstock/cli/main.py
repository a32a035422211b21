"""The `penstock` command and the list of what it can do.

Nothing heavy may be imported here: `penstock --help` has to be there at once.
"""

from __future__ import annotations

import errno
from typing import Any, Final

import click

from penstock import __version__
from penstock.cli.errors import INTERRUPTED, explain
from penstock.cli.lazy import Lazy, LazyGroup

COMMANDS: Final = {
    "The node": {
        "serve": Lazy("penstock.cli.serve:serve", "Run a node."),
        "up": Lazy("penstock.cli.up:up", "Run a node and, beside it, the data pipeline."),
        "config": Lazy("penstock.cli.config:config", "Show and check the settings of a node."),
        "storage": Lazy("penstock.cli.storage:storage", "Look into the files of a node."),
        "status": Lazy("penstock.cli.status:status", "Show how a node is doing."),
        "ping": Lazy("penstock.cli.status:ping", "Ask a node for a sign of life."),
        "top": Lazy("penstock.cli.top:top", "Watch the queues live."),
        "bench": Lazy("penstock.cli.bench:bench", "Measure a running node."),
    },
    "Queues": {
        "queue": Lazy("penstock.cli.queue:queue", "Make, list, show, set, delete, purge, pause and resume queues."),
    },
    "Messages": {
        "put": Lazy("penstock.cli.putting:put", "Put messages into a queue."),
        "take": Lazy("penstock.cli.taking:take", "Take the first messages of a queue."),
        "ack": Lazy("penstock.cli.taking:ack", "Acknowledge messages: their work is done."),
        "nack": Lazy("penstock.cli.taking:nack", "Give messages back: their work failed."),
        "release": Lazy("penstock.cli.taking:release", "Give messages back unharmed."),
        "extend": Lazy("penstock.cli.taking:extend", "Give leases a new deadline."),
        "peek": Lazy("penstock.cli.looking:peek", "Show the messages that would be taken next."),
        "browse": Lazy("penstock.cli.looking:browse", "List the messages of a queue in any state."),
        "get": Lazy("penstock.cli.looking:get", "Show one message with all that is known of it."),
        "events": Lazy("penstock.cli.events:events", "Tell everything that happened, in order."),
        "history": Lazy("penstock.cli.looking:history", "Tell the life of one message."),
        "edit": Lazy("penstock.cli.changing:edit", "Change the key or the delay of a waiting message."),
        "delete": Lazy("penstock.cli.changing:delete", "Delete messages in any state."),
        "move": Lazy("penstock.cli.changing:move", "Move messages to another queue."),
        "bury": Lazy("penstock.cli.changing:bury", "Set messages aside."),
        "kick": Lazy("penstock.cli.changing:kick", "Make buried or delayed messages ready."),
        "redrive": Lazy("penstock.cli.jobs:redrive", "Move dead letters back to where they came from."),
        "jobs": Lazy("penstock.cli.jobs:jobs", "List redrives, or stop one."),
    },
    "Data": {
        "pipeline": Lazy("penstock.cli.pipeline:pipeline", "Turn the history of a cluster into tables."),
    },
    "Other systems": {
        "import": Lazy("penstock.cli.exchanging:import_group", "Bring messages of another system into a running node."),
        "export": Lazy("penstock.cli.exchanging:export_group", "Write messages of a running node for another system."),
    },
    "Topics and exactly-once writers": {
        "broadcast": Lazy("penstock.cli.topics:broadcast", "Send a topic message."),
        "bindings": Lazy("penstock.cli.topics:bindings", "List which topic messages go into which queues."),
        "bind": Lazy("penstock.cli.topics:bind", "Copy topic messages into a queue from now on."),
        "unbind": Lazy("penstock.cli.topics:unbind", "Forget a binding."),
        "staging": Lazy("penstock.cli.staging:staging", "Stage, publish, list and abort batches."),
    },
    "The shell": {
        "completion": Lazy("penstock.cli.completion:completion", "Print the script that completes commands."),
    },
}


class Root(LazyGroup):
    """The command itself: what any part of it raises ends here, as one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            is_closed_pipe = isinstance(error, OSError) and error.errno == errno.EPIPE
            if ctx.params["debug"] or is_closed_pipe:
                raise
            raise explain(error) from error


EPILOG: Final = """\b
A queue is named by its name; '' is the default queue, which is always there.
A duration is a number of seconds, or 250ms, 30s, 5m, 2h, 1d.
The node is found by --url or PENSTOCK_URL, else at penstock://127.0.0.1:2602.

\b
Exit codes: 0 done; 1 failed; 2 usage or settings; 3 no connection; 4 refused
by the node; 5 outcome unknown; 6 nothing there; 70 the node had to give up.
"""


@click.group(
    cls=Root,
    sections=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="penstock", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show where in the program an error came from.")
def cli(debug: bool) -> None:
    """Penstock: a durable priority task queue."""


def main() -> None:
    """Run the command with the arguments of this process, and end it."""
    cli(prog_name="penstock")
