"""How a node is doing: `status`, `ping`."""

from __future__ import annotations

import click

from penstock.cli.connecting import client_options, connected
from penstock.cli.output import shown_duration, shown_size, shown_time, write_json, write_pairs


@click.command()
@client_options
def status(url: str | None, as_json: bool) -> None:
    """Show how a node is doing."""
    with connected(url) as client:
        figures = client.status()
    import msgspec

    from penstock.cli.shapes import iso, moment_of

    if as_json:
        shape = msgspec.structs.asdict(figures)
        shape["log_time"] = iso(moment_of(shape.pop("log_time_us")))
        write_json(shape)
        return
    write_pairs(
        [
            ("version", figures.version),
            ("cluster", figures.cluster),
            ("node", figures.node),
            ("leader", figures.leader),
            ("term", figures.term),
            ("applied index", figures.applied_index),
            ("snapshot index", "none" if figures.snapshot_index < 0 else figures.snapshot_index),
            ("time", shown_time(moment_of(figures.log_time_us))),
            ("up for", shown_duration(figures.uptime_ms / 1000)),
            ("mode", figures.mode),
            ("connections", f"{figures.connections} of {figures.connections_max}"),
            ("messages", figures.records),
            ("memory", f"{shown_size(figures.memory_bytes)} of {shown_size(figures.memory_bytes_max)}"),
            ("  in buffers", shown_size(figures.buffer_bytes)),
            *((f"  {kind}", shown_size(size)) for kind, size in _largest_first(figures.memory)),
            ("disk", "full: puts are refused" if figures.disk_full else "has space"),
        ]
    )


def _largest_first(memory: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(((kind, size) for kind, size in memory.items() if size), key=lambda item: -item[1])


@click.command()
@client_options
def ping(url: str | None, as_json: bool) -> None:
    """Ask a node for a sign of life."""
    with connected(url) as client:
        seconds = client.ping()
    if as_json:
        write_json({"seconds": seconds})
    else:
        click.echo(f"answered in {seconds * 1000:.2f} ms")
