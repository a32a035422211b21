"""`penstock storage inspect` and `verify`, on the files of a real node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.explaining import explain_block, explain_entry, explain_row
from penstock.client import connect
from penstock.doors.server import Server
from penstock.engine import snapshot
from penstock.engine.journal import ROW, ROW_BYTES
from penstock.engine.machine import Engine
from penstock.settings import Settings, StorageSettings, TaskfluxSettings
from penstock.testing import OTHER_DOORS_CLOSED
from tests.cli.support import Command


async def _live(data_dir: Path) -> None:
    """A node that is used a little, and stopped."""
    settings = Settings(
        data_dir=str(data_dir),
        taskflux=TaskfluxSettings(port=0),
        **OTHER_DOORS_CLOSED,
        storage=StorageSettings(segment_bytes=1024 * 1024, reserve_bytes=0),
    )
    server = Server(settings)
    await server.start()
    async with connect(f"penstock://127.0.0.1:{server.listeners[0].port}") as client:
        emails = client.queue("emails")
        await emails.create()
        await emails.put_many(["first", "second"])
        message = await emails.take()
        assert message is not None
        await message.nack()
    await server.stop()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of that node."""
    path = tmp_path_factory.mktemp("storage") / "data"
    asyncio.run(_live(path))
    return path


@pytest.fixture
def penstock() -> Command:
    """The command; no node runs."""
    return Command()


def test_inspect_tells_commands_and_events_in_words(penstock: Command, data_dir: Path) -> None:
    shown = penstock("storage", "inspect", str(data_dir)).stdout
    for name in ("raft.metadata", "raft.log", "live.events"):
        assert str(data_dir / "consensus") in shown
        assert name in shown
    assert "CreateQueue(name='emails'" in shown
    assert "payload=b'first'" in shown
    assert "by native" in shown
    assert "NewTerm(leader=0, " in shown


def test_inspect_one_file_as_json(penstock: Command, data_dir: Path) -> None:
    log = data_dir / "consensus" / "raft.log"
    documents = penstock.json("storage", "inspect", str(log))
    assert {document["path"] for document in documents} == {str(log)}
    header = documents[0]
    assert (header["offset"], header["item"]) == (0, "header")
    assert (header["fields"]["file"], header["fields"]["version"]) == ("log", 3)
    assert len(bytes.fromhex(header["fields"]["cluster_id"])) == 16
    assert [each["fields"]["index"] for each in documents if each["item"] == "entry"][:3] == [0, 1, 2]


def test_inspect_bytes_and_limit(penstock: Command, data_dir: Path) -> None:
    log = str(data_dir / "consensus" / "raft.log")
    documents = penstock.json("storage", "inspect", log, "--bytes", "--limit", "4")
    assert len(documents) == 4
    entry = next(each for each in documents if each["item"] == "entry")
    assert bytes.fromhex(entry["fields"]["data"])


def test_inspect_ends_with_1_where_a_file_cannot_be_read_to_its_end(
    penstock: Command, data_dir: Path, tmp_path: Path
) -> None:
    content = bytearray((data_dir / "consensus" / "raft.log").read_bytes())
    content[content.index(b"first")] ^= 1
    damaged = tmp_path / "raft.log"
    damaged.write_bytes(content)
    assert " bad " in penstock("storage", "inspect", str(damaged), code=1).stdout


def test_what_is_no_data_directory_is_told(penstock: Command, tmp_path: Path) -> None:
    for command in ("inspect", "verify"):
        assert "has no directory consensus/" in penstock("storage", command, str(tmp_path), code=1).stderr
        penstock("storage", command, str(tmp_path / "absent"), code=2)


def test_verify_is_content_with_good_files(penstock: Command, data_dir: Path) -> None:
    assert penstock("storage", "verify", str(data_dir)).stdout.endswith(": in order\n")
    (report,) = penstock.json("storage", "verify", str(data_dir))
    assert (report["ok"], report["problems"]) == (True, [])
    assert report["entries"] >= 5


def test_the_default_data_directory_is_meant_without_a_path(
    penstock: Command, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "penstock-data" in penstock("storage", "verify", code=2).stderr
    (tmp_path / "penstock-data").symlink_to(data_dir)
    penstock("storage", "verify")


def test_verify_finds_damage_and_ends_with_1(penstock: Command, data_dir: Path, tmp_path: Path) -> None:
    content = bytearray((data_dir / "consensus" / "raft.log").read_bytes())
    content[content.index(b"first")] ^= 1
    damaged = tmp_path / "raft.log"
    damaged.write_bytes(content)
    shown = penstock("storage", "verify", str(damaged), code=1).stdout
    assert shown.startswith(f"damage: {damaged}, offset ")
    assert shown.endswith(": not in order\n")
    (report,) = penstock.json("storage", "verify", str(damaged), code=1)
    assert report["problems"][0]["severity"] == "damage"


def test_the_blocks_of_a_snapshot_are_told() -> None:
    told = [explain_block(block) for block in snapshot.begin(Engine())]
    assert told[0].startswith("head ")
    assert told[1].startswith("queue 0 ''")
    assert any(each.startswith("published") for each in told)
    records = msgspec.msgpack.encode((snapshot.RECORDS, 7, [[1], [2]]))
    assert explain_block(records) == "records of queue 7: 2"


def test_an_event_is_told() -> None:
    row = ROW.pack(5, 0, 1, 21, 2, 1, 3, 1_000_000, 9, 7, 4, -2, 0, 8, 6, 0, 0, 0, 0, 0)
    told = explain_row(row)
    assert told.startswith("1970-01-01T00:00:01.000000+00:00 dead-lettered ")
    for part in ("queue=7 record=4 key=-2 deliveries=3", "other=8/6", "reason=nack", "by native"):
        assert part in told
    assert explain_row(row * 3) == "3 events"


@given(st.binary(max_size=300))
def test_no_bytes_break_the_explanations(data: bytes) -> None:
    for explain in (explain_entry, explain_block):
        assert explain(data).isprintable()
    assert explain_row(data.ljust(ROW_BYTES, b"\0")[:ROW_BYTES]).isprintable()


def test_repair_works_on_a_copy_and_asks_before_it_changes_files(
    penstock: Command, data_dir: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    assert "can be started from" in penstock("storage", "repair", str(data_dir), "--to", str(copy)).output
    assert "in order" in penstock("storage", "verify", str(copy)).output
    assert "exists already" in penstock("storage", "repair", str(data_dir), "--to", str(copy), code=2).output
    assert "Continue?" in penstock("storage", "repair", str(copy), input="n\n", code=1).output
    assert "nothing had to be repaired" in penstock("storage", "repair", str(copy), "--yes").output
