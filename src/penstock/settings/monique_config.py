"""Reading MoniQue's own config.json, so that who comes from there need not write it anew.

    deploy.monique.websocket            host, port             gateway_host, gateway_port
    deploy.monique.scheduler-in         host, comport, techport  in_host, com_in_port, tech_in_port
    deploy.monique.scheduler-out        host, comport, techport  out_host, com_out_port, tech_out_port
    deploy.monique.scheduler-in-logic   comport, techport      inner_com_in_port, inner_tech_in_port
    deploy.monique.scheduler-logic-out  comport, techport      inner_com_out_port, inner_tech_out_port
    deploy.monique.controller           host                   controller_host
    params.scheduler-logic              allow-messages         allow_messages
    params.mq_controller                connections            connections
    params.mq-websocket, mq_controller  creator, frequency     (how often they say that they live)

All else in it is for the components, and is skipped. What is missing keeps its default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from penstock.settings.errors import ConfigFileError
from penstock.settings.files import read_config_file

_DEPLOYED: Final = (
    ("websocket", "host", "gateway_host"),
    ("websocket", "port", "gateway_port"),
    ("scheduler-in", "host", "in_host"),
    ("scheduler-in", "comport", "com_in_port"),
    ("scheduler-in", "techport", "tech_in_port"),
    ("scheduler-out", "host", "out_host"),
    ("scheduler-out", "comport", "com_out_port"),
    ("scheduler-out", "techport", "tech_out_port"),
    ("scheduler-in-logic", "comport", "inner_com_in_port"),
    ("scheduler-in-logic", "techport", "inner_tech_in_port"),
    ("scheduler-logic-out", "comport", "inner_com_out_port"),
    ("scheduler-logic-out", "techport", "inner_tech_out_port"),
    ("controller", "host", "controller_host"),
)
_SEPARATORS: Final = frozenset(",=")
_PARTS: Final = ("mq-websocket", "mq_controller")


class Found(NamedTuple):
    """A value for one of our settings, and under which key of the file it stood."""

    value: object
    key: str


class Heartbeat(NamedTuple):
    """How a part of MoniQue says that it lives."""

    name: str
    creator: str
    frequency_ms: int


class MoniqueConfig(NamedTuple):
    """What a config.json says that matters to a node."""

    values: dict[str, Found]
    """By the dotted key of our setting; not yet checked."""
    connections: dict[str, int]
    """The controller's port for each spec."""
    heartbeats: list[Heartbeat]


def read_monique_config(path: str | Path) -> MoniqueConfig:
    """What a config.json says. Raises ConfigFileError."""
    document = _read(Path(path))
    values: dict[str, Found] = {}
    for section, name, setting in _DEPLOYED:
        value = _table(path, document, "deploy", "monique", section).get(name)
        if value is not None:
            values[f"monique.{setting}"] = Found(
                "0.0.0.0" if value == "*" else value, f"deploy.monique.{section}.{name}"
            )
    allowed = _table(path, document, "params", "scheduler-logic").get("allow-messages")
    if allowed is not None:
        key = "params.scheduler-logic.allow-messages"
        if not isinstance(allowed, list) or not all(map(_is_spec, allowed)):
            raise ConfigFileError(str(path), f"{key} is not a list of specs")
        values["monique.allow_messages"] = Found(",".join(allowed), key)
    connections = _connections(path, document)
    if connections:
        text = ",".join(f"{spec}={port}" for spec, port in connections.items())
        values["monique.connections"] = Found(text, "params.mq_controller.connections")
    return MoniqueConfig(values, connections, [beat for name in _PARTS for beat in _heartbeats(path, document, name)])


def _connections(path: str | Path, document: dict[str, Any]) -> dict[str, int]:
    found = _table(path, document, "params", "mq_controller", "connections")
    for spec, port in found.items():
        if not _is_spec(spec) or type(port) is not int or not 0 <= port <= 65_535:
            raise ConfigFileError(
                str(path), f"params.mq_controller.connections: {spec!r} with {port!r} is not a spec with its port"
            )
    return found


def _heartbeats(path: str | Path, document: dict[str, Any], name: str) -> list[Heartbeat]:
    part = _table(path, document, "params", name)
    frequency_ms, creator = part.get("frequency"), part.get("creator", name)
    if type(frequency_ms) is not int or frequency_ms <= 0 or not isinstance(creator, str) or ":" in creator:
        return []
    return [Heartbeat(name, creator, frequency_ms)]


def _is_spec(value: object) -> bool:
    return isinstance(value, str) and bool(value) and ":" not in value and not _SEPARATORS.intersection(value)


def _table(path: str | Path, document: dict[str, Any], *names: str) -> dict[str, Any]:
    """The table under these names; an empty one where there is none."""
    for depth, name in enumerate(names):
        document = document.get(name, {})
        if not isinstance(document, dict):
            raise ConfigFileError(str(path), f"{'.'.join(names[: depth + 1])} is not an object")
    return document


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read_config_file(path), type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise ConfigFileError(str(path), f"is not a JSON object: {error}") from error
