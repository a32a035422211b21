"""docs/protocols/native.md against the source: every request, field, default, answer, code and limit stands in it.

The document is the contract for clients in other languages, so it may not fall behind. Its conversation in bytes is
held with a real node.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from penstock.client import protocol
from penstock.doors import connection as door
from penstock.engine import answers, commands, jobs, journal, producers, reading, staging, state, views
from penstock.engine import errors as engine_errors
from penstock.engine.errors import NAMES, Refusal
from penstock.node import states
from penstock.settings import LimitsSettings
from penstock.testing import TestServer
from penstock.wire.native import frames
from penstock.wire.native import messages as m

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "protocols" / "native.md"
OPERATIONS = {
    number: name
    for module in (commands, m)
    for name, number in vars(module).items()
    if isinstance(number, int) and name.isupper() and number in {**commands.TYPES, **m.REQUESTS}
    if {**commands.TYPES, **m.REQUESTS}[number].__name__ == "".join(part.title() for part in name.split("_"))
}
"""The name of each operation as its constant has it."""
OPEN_OPERATIONS = sorted(set(OPERATIONS) - commands.INTERNAL_OPS)
SHAPES = [
    kind
    for module in (commands, answers, views, m, engine_errors)
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, msgspec.Struct)
    and kind is not msgspec.Struct
    and kind.__module__ == module.__name__
    and kind not in {**commands.TYPES, **m.REQUESTS}.values()
    and kind is not commands.QueueChanges
]
"""Everything that is part of a request or an answer."""


@cache
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@cache
def sections() -> dict[str, str]:
    """What stands under each heading, by the heading."""
    parts = re.split(r"^#{2,3} (.+)$", text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(section: str) -> Iterator[list[str]]:
    """The cells of every row of every table of a section, but for headings and rulers."""
    for line in section.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\- ]+", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def documented_fields(section: str) -> list[tuple[str, str]]:
    """(name, default) of each field that a section's first table lists."""
    listed = [cells for cells in rows(section) if len(cells) == 4]
    assert listed[0] == ["field", "type", "default", "meaning"]
    fields = []
    for name, kind, default, _ in listed[1:]:
        assert kind, f"{name} has no type"
        fields.append((name, default))
    return fields


def source_fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """The same from the source."""
    return [(field.name, default_text(field)) for field in msgspec.structs.fields(kind)]


def default_text(field: msgspec.structs.FieldInfo) -> str:
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    if default is msgspec.NODEFAULT:
        return ""
    if default is None or default is commands.NO_RAW:
        return "nil"
    if isinstance(default, bool):
        return str(default).lower()
    if default == ():
        return "[]"
    if default == b"":
        return 'b""'
    return '""' if default == "" else str(default)


def test_every_operation_has_a_name() -> None:
    assert set(OPERATIONS) == {*commands.TYPES, *m.REQUESTS}


@pytest.mark.parametrize("number", OPEN_OPERATIONS, ids=OPERATIONS.get)
def test_every_request_is_documented_with_its_fields_in_order(number: int) -> None:
    kind = {**commands.TYPES, **m.REQUESTS}[number]
    section = sections()[f"{number} {OPERATIONS[number]}"]
    if source_fields(kind):
        assert documented_fields(section) == source_fields(kind)
    else:
        assert section.strip().startswith("No fields")


@pytest.mark.parametrize("number", OPEN_OPERATIONS, ids=OPERATIONS.get)
def test_every_request_is_documented_with_its_answer(number: int) -> None:
    answer = m.ANSWERS[number]
    is_list = get_origin(answer) is list
    name = (get_args(answer)[0] if is_list else answer).__name__
    section = sections()[f"{number} {OPERATIONS[number]}"]
    assert re.search(rf"Answer: {'an array of ' if is_list else ''}\[{name}\]\(#{name.lower()}\)", section)
    overview = next(cells for cells in rows(sections()["Requests"]) if cells[0] == str(number))
    assert OPERATIONS[number] in overview[1]
    assert overview[2].removesuffix(", then pushes") == (f"[{name}]" if is_list else name)


@pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: kind.__name__)
def test_every_shape_is_documented_with_its_fields_in_order(kind: type[msgspec.Struct]) -> None:
    assert documented_fields(sections()[kind.__name__]) == source_fields(kind)


def test_requests_and_answers_are_arrays_as_the_document_says() -> None:
    for kind in [*commands.TYPES.values(), *m.REQUESTS.values(), *SHAPES]:
        assert kind.__struct_config__.array_like, kind


def test_the_changes_of_a_queue_are_documented() -> None:
    section = sections()["QueueChanges"]
    assert re.findall(r"`(\w+)`", section) == list(commands.QueueChanges.__struct_fields__)


def test_every_refusal_is_documented_with_its_number() -> None:
    listed = {int(cells[0]): cells[1] for cells in rows(sections()["Codes"]) if cells[0].isdigit()}
    assert listed == NAMES


def test_no_refusal_is_named_that_does_not_exist() -> None:
    known = {*NAMES.values(), *OPERATIONS.values()}
    for word in re.findall(r"\b[A-Z]{2,}(?:_[A-Z]+)+\b", text()):
        assert word in known, word


@pytest.mark.parametrize("status", ["ANSWER", "REFUSED", "PUSH"])
def test_every_status_is_documented(status: str) -> None:
    assert [str(getattr(m, status)), status] in [cells[:2] for cells in rows(sections()["Frames"])]


def test_events_doors_and_reasons_are_documented() -> None:
    kinds = {
        int(cells[column]): cells[column + 1].partition(":")[0]
        for cells in rows(sections()["EventView"])
        if len(cells) == 8
        for column in (0, 3, 6)
        if cells[column].isdigit()
    }
    assert kinds == {number: name for number, (name, _) in journal.KINDS.items()}
    doors = ", ".join(f"{number} {name}" for number, name in journal.DOORS.items())
    assert f"Doors: {doors}." in sections()["EventView"]
    reasons = {
        int(cells[column]): cells[column + 1]
        for cells in rows(sections()["Reasons"])
        for column in (0, 2, 4)
        if cells[column].isdigit()
    }
    assert reasons == {**journal.REASONS, 0: "none"}


def test_states_are_documented() -> None:
    states = ", ".join(f"{number} {name}" for number, name in enumerate(views.STATE_NAMES))
    assert states in sections()["67 BROWSE"]
    assert states in sections()["RecordView"]


@pytest.mark.parametrize(
    ("heading", "figure"),
    [
        ("Limits", f"{commands.RECORDS_PER_COMMAND_MAX:,}"),
        ("Limits", f"{commands.RECORDS_PER_TAKE_MAX:,}"),
        ("Limits", f"{commands.BYTES_PER_ANSWER_MAX // 2**20} MiB"),
        ("Limits", f"{state.LEASES_PER_OWNER_MAX:,}"),
        ("Limits", f"{m.SUBSCRIPTIONS_MAX:,}"),
        ("Limits", f"{door.IN_FLIGHT_MAX:,}"),
        ("Limits", f"{LimitsSettings().queues:,}"),
        ("Limits", f"{staging.QUERIES_MAX:,}"),
        ("Limits", f"{staging.QUERIES_PUBLISHED_MAX:,}"),
        ("Limits", f"{LimitsSettings().connections:,}"),
        ("Limits", f"{frames.FRAME_BYTES_MAX // 2**20} MiB"),
        ("Limits", f"{LimitsSettings().payload_bytes // 2**20} MiB"),
        ("Limits", f"{LimitsSettings().inflight_bytes // 2**20} MiB"),
        ("Limits", f"{door._OUTPUT_HIGH_BYTES // 2**20} MiB"),
        ("Limits", f"{round(door.STALLED_AFTER_S / 60)} minutes"),
        ("Producers and repeats", f"{producers.ANSWERS_KEPT:,}"),
        ("Producers and repeats", f"{producers.PRODUCERS_MAX:,}"),
        ("Producers and repeats", f"{producers.FORGET_AFTER_US // 3_600_000_000} hours"),
        ("67 BROWSE", f"{reading.SCANNED_PER_PAGE_MAX:,}"),
        ("70 LIST_JOBS", f"{jobs.ENDED_JOBS_KEPT}"),
        ("78 CUT_JOURNAL", f"{m.CUTS_MAX:,}"),
        ("80 READ_SNAPSHOT", f"{states.LET_GO_AFTER_S:.0f} seconds"),
        ("80 READ_SNAPSHOT", f"{states.HELD_MAX} at most"),
        ("Values", f"{commands.DURATION_MS_MAX:,}"),
        ("Frames", f"at least {frames.HEADER.size - 4}"),
    ],
)
def test_limits_are_documented_with_the_figures_of_the_source(heading: str, figure: str) -> None:
    assert re.search(rf"(?<![\d,]){re.escape(figure)}(?![\d,]\d)", sections()[heading]), f"{figure} in {heading}"


def test_links_inside_the_document_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in sections()}
    for target in re.findall(r"\]\(#([^)]+)\)", text()):
        assert target in anchors, target


# The bytes of the document, held with a real node.


def hex_bytes(line: str) -> bytes:
    return bytes.fromhex("".join(line.split()))


def handshake() -> Iterator[tuple[str, bytes]]:
    for side, digits in re.findall(r"^    (client|server)  ((?:[0-9A-F]{2} )+)", text(), flags=re.MULTILINE):
        yield side, hex_bytes(digits)


def conversation() -> list[tuple[str, bytes]]:
    lines = re.findall(r"^    ([<>]) ([0-9a-f ]+)$", sections()["A conversation in bytes"], flags=re.MULTILINE)
    return [(side, hex_bytes(digits)) for side, digits in lines]


def without_times(op: int, body: bytes) -> Any:
    """An answer as values, without what differs from day to day."""
    value = msgspec.msgpack.decode(body)
    if op == m.HELLO:
        value[0] = "version"
    if op == commands.TAKE:
        for delivery in value[1]:
            lease_us = delivery[6] - delivery[4]
            assert lease_us >= 30_000_000
            delivery[4] = delivery[6] = 0
    return value


def test_the_handshake_is_the_clients_own() -> None:
    steps = list(handshake())
    assert b"".join(data for side, data in steps if side == "client") == protocol._HANDSHAKE


def test_the_conversation_can_be_held_with_a_node() -> None:
    with TestServer() as server, socket.create_connection((server.host, server.port), timeout=30) as client:

        def receive(count: int) -> bytes:
            data = b""
            while len(data) < count:
                data += client.recv(count - len(data))
            return data

        for side, data in handshake():
            if side == "client":
                client.sendall(data)
            else:
                assert receive(len(data)) == data
        op = 0
        for side, data in conversation():
            ((code, number, body),) = frames.FrameReader().feed(data)
            if side == ">":
                op = code
                client.sendall(data)
                continue
            length, status, request = frames.HEADER.unpack(receive(frames.HEADER.size))
            answer = receive(length + 4 - frames.HEADER.size)
            assert (status, request) == (code, number)
            assert without_times(op, answer) == without_times(op, body)


def test_a_refusal_is_an_array_too() -> None:
    assert msgspec.msgpack.decode(commands.encode(Refusal(10, "full", (5,)))) == [10, "full", [5]]
