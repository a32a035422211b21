"""`penstock import` and `penstock export`: messages of other systems, into a running node and out of it."""

from __future__ import annotations

from typing import Final

import click

from penstock.cli.lazy import Lazy, LazyGroup

IMPORTS: Final = {
    "Systems": {"etzel": Lazy("penstock.cli.etzel:import_etzel", "Put the stored records of Etzel into queues.")}
}
EXPORTS: Final = {
    "Systems": {"etzel": Lazy("penstock.cli.etzel_export:export_etzel", "Write queues as stored records of Etzel.")}
}


@click.group("import", cls=LazyGroup, sections=IMPORTS)
def import_group() -> None:
    """Bring messages of another system into a running node.

    The files of TaskFlux make a new node instead: see `penstock storage import`.
    """


@click.group("export", cls=LazyGroup, sections=EXPORTS)
def export_group() -> None:
    """Write messages of a running node for another system.

    The files of TaskFlux are written from a stopped node: see `penstock storage export`.
    """
