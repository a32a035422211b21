"""Entries in their log form; and apply, which is total: whatever stands in a log, it ends in answers and events."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as s

from penstock.engine import Engine
from penstock.engine import commands as c
from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.entries import COMMANDS_PER_ENTRY_MAX, Command, Entry, decode_args, decode_entry, encode_entry
from penstock.engine.errors import Refusal
from penstock.engine.snapshot import begin, restore
from tests.engine.driving import START_US, Asked, Drive, events_of, expect, item, to_command

UINT64_MAX = 2**64 - 1

bodies = s.binary(max_size=40)
uint64s = s.integers(0, UINT64_MAX)
raw_commands = s.builds(Command, s.integers(0, 255), s.integers(0, 255), uint64s, uint64s, uint64s, bodies, s.none())
raw_entries = s.builds(Entry, s.integers(0, START_US * 2), s.lists(raw_commands, max_size=5))


def some_commands() -> list[Asked]:
    """One of each kind, with all fields said."""
    rich = item(5, b"payload", headers={"a": "b"}, delay_ms=5, dedup_key="k", expires_ms=9, lease_ms=3)
    return [
        Asked(c.CreateQueue("jobs", c.QueueSettings(size_max=5, dead_letter="dead", key_range=(-9, 9)), True)),
        Asked(c.ChangeQueue("jobs", c.QueueChanges(size_max=None, lease_ms=5))),
        Asked(c.Put("jobs", [item(1, b"x"), rich], True), UINT64_MAX, j.DOOR_TASKFLUX, 7, 8),
        Asked(c.PutMany([("jobs", [item(1)]), ("", [rich])])),
        Asked(c.Take("jobs", 3, 0, 5, True, True)),
        Asked(c.Ack("jobs", [(1, 2)])),
        Asked(c.AckTake("jobs", [(1, 2)], 3, None, 9)),
        Asked(c.Return("jobs", [(1, 2)], c.RELEASE, 5, j.REASON_ACK_TIMEOUT)),
        Asked(c.Extend("jobs", [(1, 2)], 5)),
        Asked(c.Bury("jobs", [(1, 0)])),
        Asked(c.Kick("jobs", [1], 2)),
        Asked(c.Edit("jobs", 1, 5, 7)),
        Asked(c.Delete("jobs", [1, 2])),
        Asked(c.Move("jobs", [1], "")),
        Asked(c.Redrive("jobs", None, (1, 2), 3, 4, 5, 6)),
        Asked(c.CancelJob(7)),
        Asked(c.Purge("jobs")),
        Asked(c.Pause("jobs", True)),
        Asked(c.Stage("q", 1, 2, 3, 4, [("jobs", [rich])])),
        Asked(c.Publish("q", 1, [(2, 3)])),
        Asked(c.Abort("q", 1)),
        Asked(c.Broadcast(3, b"tag", b"body", "spec", "type", 5)),
        Asked(c.Bind("b", "spec", "type", "jobs", 5, True)),
        Asked(c.Unbind("b")),
        Asked(c.DeleteQueue("jobs")),
        Asked(c.NewTerm(3)),
        Asked(c.Tick()),
        Asked(c.NameOwner(9, "worker"), owner=9),
        Asked(c.OwnerGone(9)),
    ]


def test_every_operation_stands_in_the_list_above() -> None:
    assert {type(asked.args) for asked in some_commands()} == set(c.OPS)


def test_an_entry_is_decoded_as_it_was_encoded() -> None:
    entry = Entry(START_US, [to_command(asked) for asked in some_commands()])
    decoded = decode_entry(encode_entry(entry))
    assert decoded is not None
    assert decoded.stamp_us == START_US
    for before, after in zip(entry.commands, decoded.commands, strict=True):
        assert c.encode(after.args) == before.body
        assert (after.op, after.door, after.owner, after.producer, after.request, after.body) == (
            *(before.op, before.door, before.owner, before.producer, before.request),
            before.body,
        )


def test_every_prefix_of_an_entry_is_told_from_a_whole_one() -> None:
    data = encode_entry(Entry(START_US, [to_command(asked) for asked in some_commands()]))
    assert [length for length in range(len(data) + 1) if decode_entry(data[:length]) is not None] == [len(data)]
    assert decode_entry(data + b"\x00") is None


@given(s.binary(max_size=200))
def test_junk_is_decoded_or_told(data: bytes) -> None:
    entry = decode_entry(data)
    assert entry is None or len(encode_entry(entry)) == len(data)


@given(raw_entries)
def test_an_entry_of_nonsense_keeps_its_frame(entry: Entry) -> None:
    decoded = decode_entry(encode_entry(entry))
    assert decoded is not None
    assert [command.body for command in decoded.commands] == [command.body for command in entry.commands]


@pytest.mark.parametrize("op", sorted(c.TYPES))
def test_no_body_makes_a_decoder_raise(op: int) -> None:
    """Bad UTF-8, deep nesting, lengths that lie, and what chance brings."""
    random = Random(op)
    good = next(to_command(asked).body for asked in some_commands() if c.OPS[type(asked.args)] == op)
    junk = [
        b"",
        b"\x91\xa1\xff",
        b"\x92\xa1\xff\x90",
        b"\x91" * 100_000,
        b"\x91\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    ]
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(random.randint(1, 3)):
            if damaged:
                damaged[random.randrange(len(damaged))] = random.randrange(256)
        junk.append(bytes(damaged[: random.choice((None, random.randrange(len(damaged) + 1)))]))
    for body in junk:
        decode_args(op, body)


# --- apply is total ---------------------------------------------------------------------------------------------------


def test_an_unreadable_command_is_a_no_op_with_an_event() -> None:
    drive = Drive()
    before = drive.snapshot()[1:]
    bad = [Command(c.PUT, j.DOOR_NATIVE, 5, 6, 7, b"\xc1junk", None), Command(200, 1, 0, 0, 0, b"", None)]
    answers = drive.apply_bytes(encode_entry(Entry(drive.now_us, [*bad, to_command(Asked(c.Tick()))])))
    assert [expect(Refusal, answer).code for answer in answers[:2]] == [e.BAD_COMMAND, e.BAD_COMMAND]
    assert not isinstance(answers[2], Refusal)
    unreadable = [event for event in drive.events() if event.kind == j.UNREADABLE]
    assert [(event.index, event.n, event.owner) for event in unreadable] == [(1, 0, 5), (1, 1, 0)]
    assert drive.snapshot()[1:] == before


def test_an_unreadable_entry_is_a_no_op_with_an_event() -> None:
    drive = Drive()
    assert drive.apply_bytes(b"not an entry") == []
    assert drive.events()[-1].kind == j.UNREADABLE
    drive.create("jobs")


@given(s.lists(raw_entries, max_size=5))
def test_apply_is_total_for_random_bodies(entries: list[Entry]) -> None:
    drive = Drive()
    for entry in entries:
        answers = drive.apply_bytes(encode_entry(entry))
        assert len(answers) == len(entry.commands)


def test_apply_is_total_for_damaged_commands() -> None:
    """Real commands with a few bytes changed: most decode to something odd, and none may stop the engine."""
    rounds = 100_000 if os.environ.get("PENSTOCK_SOAK") == "1" else 5000
    random = Random(11)
    drive = Drive()
    drive.create("jobs")
    drive.create("dead")
    commands = [to_command(asked) for asked in some_commands()]
    for _ in range(rounds):
        batch = []
        for command in random.choices(commands, k=4):
            body = bytearray(command.body)
            for _ in range(random.choice((0, 0, 1, 1, 2))):
                if body:
                    body[random.randrange(len(body))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
            owner = random.choice((0, drive.owner(1), UINT64_MAX))
            batch.append(
                Command(command.op, random.randrange(256), owner, random.choice((0, 0, 5)), 1, bytes(body), None)
            )
        drive.now_us += random.choice((0, 0, 1000, 100_000, 10**9))
        drive.apply_bytes(encode_entry(Entry(drive.now_us, batch)))
    blocks = drive.snapshot()
    assert list(begin(restore(blocks))) == blocks
    replica = Engine()
    for index, (term, data) in enumerate(drive.log):
        replica.apply(index, term, decode_entry(data))
    assert list(begin(replica)) == blocks
    assert replica.state.rows == drive.rows
    assert len({event.kind for event in events_of(drive.rows)}) > 20


EXTREMES = [
    c.NewTerm(UINT64_MAX),
    c.OwnerGone(c.INT64_MAX),
    c.Put("", [item(c.INT64_MIN, available_at_us=c.INT64_MAX, expires_at_us=c.INT64_MAX)]),
    c.Put(
        "", [item(c.INT64_MAX, delay_ms=c.DURATION_MS_MAX, expires_ms=c.DURATION_MS_MAX, lease_ms=c.DURATION_MS_MAX)]
    ),
    c.Put("", []),
    c.PutMany([]),
    c.Take("", c.RECORDS_PER_TAKE_MAX, c.DURATION_MS_MAX),
    c.Ack("", [(c.INT64_MAX, c.INT64_MAX)] * 3),
    c.Edit("", 1, c.INT64_MIN, c.DURATION_MS_MAX),
    c.Redrive("", None, (c.INT64_MIN, c.INT64_MAX), 255, c.INT64_MAX, 1_000_000, c.INT64_MAX),
    c.CancelJob(c.INT64_MAX),
    c.Stage("ü" * 255, c.INT64_MAX, c.INT64_MAX, c.INT64_MAX, c.INT64_MAX, []),
    c.Publish("ü" * 255, c.INT64_MAX, [(c.INT64_MAX, c.INT64_MAX)]),
    c.Broadcast(255, b"", b"", "\x00", "\x00", c.INT64_MAX),
    c.Bind("b", "", "", "made", c.DURATION_MS_MAX),
    c.Return("", [(c.INT64_MAX, 0)], c.UNSENT, c.DURATION_MS_MAX, 255),
]


@pytest.mark.parametrize("args", EXTREMES, ids=lambda args: type(args).__name__)
def test_the_largest_values_that_decode_can_be_applied(args: object) -> None:
    drive = Drive()
    drive.put("", 1)
    drive.do(args, owner=UINT64_MAX, producer=UINT64_MAX, request=UINT64_MAX)
    drive.take("", 10)
    drive.wait(1)
    assert list(begin(restore(drive.snapshot()))) == drive.snapshot()


@pytest.mark.parametrize(
    "args",
    [c.Stage("q", 1, 0, 0, 0, [("", [item()])]), c.Publish("q", 1, [(0, 0)], 1)],
    ids=lambda args: type(args).__name__,
)
def test_what_was_written_before_a_query_could_have_a_last_batch_means_the_same(args: Any) -> None:
    fields = msgspec.msgpack.decode(c.encode(args))
    assert fields.pop() is False
    assert c.DECODERS[c.OPS[type(args)]].decode(c.encode(fields)) == args


def test_time_never_runs_backwards() -> None:
    drive = Drive()
    drive.create("jobs")
    drive.now_us -= 5_000_000
    drive.put("jobs")
    assert drive.records("jobs")[0].published_us == drive.now_us + 5_000_000


def test_the_last_command_of_the_largest_entry_has_a_token_of_its_own() -> None:
    """A position has 16 bits in a token; one more command would share it with the next entry's first."""
    drive = Drive()
    drive.put("", 1)
    ticks = [to_command(Asked(c.Tick()))] * (COMMANDS_PER_ENTRY_MAX - 1)
    entry = Entry(drive.now_us, [*ticks, to_command(Asked(c.Take("")))])
    answers = drive.apply_bytes(encode_entry(entry))
    assert drive.record("", 1).token == (len(drive.log) << 16) - 2
    assert len(answers) == COMMANDS_PER_ENTRY_MAX
