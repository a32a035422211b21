"""The generated history is what it says it is: repeatable, complete in kinds, and true by two ways of reckoning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.msgpack import decode

from penstock.engine import journal as j
from tests.spark.generated.comparing import KEYS, differences, totals_of
from tests.spark.generated.history import Generated, generate
from tests.spark.generated.lives import messages_table
from tests.spark.generated.plain import events_table
from tests.spark.generated.reference import Reference
from tests.spark.generated.tasks import tasks_table

EVENTS = 120_000


@dataclass
class Told:
    """A history, its events, and the tables that follow from them."""

    made: Generated
    events: pa.Table
    messages: pa.Table
    tasks: pa.Table
    reference: Reference


def tell(directory: Path, events: int, seed: int) -> Told:
    """Make a history and reckon with it."""
    made = generate(directory, events, seed)
    rows = events_table(directory, made.cluster_id, made.truth.queue_names())
    tasks = tasks_table(made.truth.tasks.all)
    return Told(made, rows, messages_table(made.truth.lives), tasks, Reference(tasks, events=rows))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A history that has everything in it."""
    history = tell(tmp_path_factory.mktemp("generated") / "data", EVENTS, 2)
    yield history
    history.reference.close()


def seen(told: Told, column: str, kind: str | None = None) -> set[object]:
    """The values of a column of events, or of those of one kind."""
    rows = told.events if kind is None else told.events.filter(pc.field("kind") == kind)
    return set(pc.unique(rows.column(column)).to_pylist())


def test_the_same_seed_makes_the_same_files(tmp_path: Path) -> None:
    """Nothing depends on a clock or on chance: to the byte."""

    def contents(name: str, seed: int) -> dict[str, bytes]:
        generate(tmp_path / name, 5_000, seed)
        files = sorted((tmp_path / name).rglob("*.*"))
        return {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in files if file.is_file()}

    first = contents("first", 3)
    assert contents("again", 3) == first
    assert contents("other", 4) != first


def test_the_truth_is_what_follows_from_the_events(told: Told) -> None:
    """What was kept from questions and answers, and what DuckDB makes of the journal, are the same in every column."""
    assert told.events.num_rows == told.made.truth.events >= EVENTS
    assert differences("silver.messages", told.messages, told.reference.table("silver.messages")) == []


def test_other_seeds_are_true_as_well(tmp_path: Path) -> None:
    """So that it is not luck."""
    for seed in (5, 6):
        other = tell(tmp_path / str(seed), 15_000, seed)
        assert differences("silver.messages", other.messages, other.reference.table("silver.messages")) == []
        other.reference.close()


def test_payloads_and_headers_are_those_that_were_put(told: Told) -> None:
    """Each event of a put leads to the very bytes, also where they lie in an earlier entry."""
    puts = told.events.filter(pc.field("kind") == "put").select(["queue_uid", "id", "payload", "headers"])
    found = {(row["queue_uid"], row["id"]): row["payload"] for row in puts.to_pylist()}
    lives = [life for life in told.made.truth.lives if not life.is_moved]
    assert found == {(life.line.uid, life.id): life.payload for life in lives}
    headers = {(row["queue_uid"], row["id"]): dict(row["headers"] or ()) for row in puts.to_pylist()}
    # What a binding says of its copies stands nowhere in the log, so the events cannot have it.
    copies = {life for lives in told.made.truth.copies.values() for life in lives}
    known = {(life.line.uid, life.id): life.headers for life in lives if life not in copies}
    assert {name: headers[name] for name in known} == {name: decode(said or b"\x80") for name, said in known.items()}
    assert sum(map(bool, known.values())) > 100
    assert set(b"".join(found.values())) == set(range(256))
    assert max(map(len, found.values())) > 2_000 > 0 == min(map(len, found.values()))


def test_everything_happens(told: Told) -> None:
    """All kinds of events, doors, reasons, states and outcomes, keys in all bands, and several days."""
    assert seen(told, "kind") == {name for name, _ in j.KINDS.values()}
    assert seen(told, "door") == set(j.DOORS.values())
    assert seen(told, "reason") == {*j.REASONS.values(), None} - {"", "binding"}
    assert seen(told, "channel", "broadcast") == {"com", "tech"}
    outcomes = set(pc.unique(told.messages.column("outcome")).to_pylist())
    assert outcomes == {None, "acked", "expired", "dead-lettered", "deleted", "moved", "purged", "queue-deleted"}
    assert set(pc.unique(told.messages.column("state")).to_pylist()) == {
        "ready",
        "delayed",
        "leased",
        "buried",
        "ended",
    }
    keys = seen(told, "key", "put")
    assert {-(2**63), 2**63 - 1} <= keys
    assert len(set(pc.unique(told.reference.table("gold.key_bands").column("band")).to_pylist())) == 8
    days = {time.date() for time in told.reference.table("gold.queue_minutes").column("minute").to_pylist()}
    assert len(days) >= 2


def test_queues_are_made_again_under_their_names(told: Told) -> None:
    """So that a name says less than a uid."""
    names = [line.name for line in told.made.truth.all_lines]
    assert names.count("scratch") > 1
    assert told.made.truth.lines[""].totals["arrivals"] > 100, "the default queue, whose uid is 0, is in use"


def test_tasks_have_answers_chains_and_none(told: Told) -> None:
    """Results, errors, errors that cannot be read, tasks without an end, unreadable ones, and chains."""
    tasks = told.tasks.to_pylist()
    assert {task["outcome"] for task in tasks} == {"result", "error", None}
    assert {task["error_code"] for task in tasks if task["outcome"] == "error"} == {0, 301, 500, 502, None}
    assert max(task["depth"] for task in tasks) > 4
    assert any(task["encoding"] is None for task in tasks)


def test_a_wrong_table_is_noticed(told: Told) -> None:
    """One value changed, one row lost, one row twice: each is told, with the row."""
    messages = told.messages
    worked = messages.column("worked_us").to_pylist()
    worked[77] += 1
    at = messages.column_names.index("worked_us")
    changed = messages.set_column(at, messages.field(at), pa.array(worked, pa.int64()))
    (said,) = differences("silver.messages", messages, changed)
    assert "worked_us: 1 wrong" in said
    assert repr(worked[77]) in said
    assert "lacks" in " ".join(differences("silver.messages", messages, messages.slice(1)))
    twice = pa.concat_tables([messages, messages.slice(0, 1)])
    assert differences("silver.messages", messages, twice) != []


def test_the_reference_has_every_gold_table(told: Told) -> None:
    """And each has rows, named once."""
    for name in (name for name in KEYS if name.startswith("gold.")):
        table = told.reference.table(name)
        names = table.select(KEYS[name]).to_pylist()
        assert len({tuple(row.values()) for row in names}) == len(names) > 100, name


def test_the_totals_are_those_of_the_minutes(told: Told) -> None:
    """What the reference counts by minute adds up to what was counted while the history was made."""
    assert totals_of(told.reference.table("gold.queue_minutes")) == told.made.truth.totals()
