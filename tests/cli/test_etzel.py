"""`penstock import etzel` and `penstock export etzel`: real records of the original, both layouts, what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import etzel as importing
from penstock.cli.etzel_export import NEVER_S
from penstock.client import Record, connect_sync
from penstock.client.sync import Client
from penstock.testing import TestServer
from penstock.wire.etzel import Layout, StoredRecord, decode_stored, decode_uid, encode_stored
from tests.cli.support import Command, Terminal

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "etzel.json").read_text(encoding="utf-8"))
DISK = VECTORS["disk"]["records"]
SOON_S = int(time.time()) + 100_000
"""A second that has not come when any of these tests runs."""


@pytest.fixture
def node() -> Any:
    """A node of each test's own: an import remembers its file."""
    with TestServer() as server:
        yield server


def line_of(record: StoredRecord, layout: Layout = Layout.ETZEL) -> str:
    key, value = encode_stored(record, layout)
    return json.dumps({"key": key.hex(), "value": value.hex()}) + "\n"


def lines_of(*records: StoredRecord, layout: Layout = Layout.ETZEL) -> str:
    return "".join(line_of(record, layout) for record in records)


def records_in(text: str, layout: Layout = Layout.ETZEL) -> list[StoredRecord]:
    pairs = [json.loads(line) for line in text.splitlines()]
    return [decode_stored(bytes.fromhex(each["key"]), bytes.fromhex(each["value"]), layout) for each in pairs]


def contents(client: Client, queue: str) -> list[Record]:
    return list(client.queue(queue).browse())


def moment(time_s: int) -> datetime:
    return datetime.fromtimestamp(time_s, UTC)


# Importing.


def test_records_of_the_original_as_they_lay_on_its_disk(penstock: Command, client: Client) -> None:
    lines = [json.dumps({"key": each["key"].encode().hex(), "value": each["value_hex"]}) for each in DISK]
    alive = [each for each in DISK if each["expires_abs"] > time.time()]
    assert 0 < len(alive) < len(DISK), "one of them lived for ten minutes"
    (told,) = penstock.json("import", "etzel", input="\n".join(lines))
    assert (told["imported"], told["expired"]) == (len(alive), len(DISK) - len(alive))
    by_payload = {record.payload.decode(): record for name in told["queues"] for record in contents(client, name)}
    assert by_payload.keys() == {each["item"] for each in alive}
    for each in alive:
        record = by_payload[each["item"]]
        assert record.queue == each["key"].partition("*")[0]
        assert record.headers["etzel-uid"] == each["key"].partition("*")[2]
        assert record.headers.get("etzel-error-count", "0") == str(each["error_count"])
        assert record.expires_at == moment(each["expires_abs"])
        assert record.state == "ready"


def test_what_has_expired_is_left_out_and_counted(penstock: Command, client: Client) -> None:
    text = lines_of(
        StoredRecord("q", "a_1", b"dead", expires_at_s=int(time.time()) - 1),
        StoredRecord("q", "a_2", b"alive", expires_at_s=SOON_S),
        StoredRecord("gone", "a_3", b"dead", expires_at_s=1),
    )
    assert penstock("import", "etzel", input=text).stdout == "imported 1 record into 1 queue; 2 had expired\n"
    assert [record.payload for record in contents(client, "q")] == [b"alive"]
    assert "gone" not in {view.name for view in client.queues()}


def test_delay_expiry_and_timeout_are_kept_as_moments_and_lease(penstock: Command, client: Client) -> None:
    text = lines_of(
        StoredRecord("q", "a_1", b"later", 0, SOON_S, SOON_S + 5, 300),
        StoredRecord("q", "a_2", b"now", 3, 1_700_000_000, 0, 300),
        StoredRecord("q", "a_3", b"for ever", 0, 0, 2**63 - 1, 0),
        layout=Layout.SEED,
    )
    penstock("import", "etzel", "--layout", "seed", "--key", "7", input=text)
    later, now, for_ever = contents(client, "q")
    assert (later.state, later.available_at, later.expires_at) == ("delayed", moment(SOON_S), moment(SOON_S + 5))
    assert (now.state, now.expires_at, now.key) == ("ready", None, 7)
    assert for_ever.expires_at is None
    leases = {}
    for message in client.queue("q").take_many(2):
        assert message.lease_until is not None
        leases[message.text] = (message.lease_until - datetime.now(UTC)).total_seconds()
    assert 280 < leases["now"] <= 300
    assert 40 < leases["for ever"] <= 60


def test_any_qname_finds_its_queue(penstock: Command, client: Client) -> None:
    names = {"": "", "a*b": "a*b", "a-b": "a-b", "zwei Wörter": "zwei%20W%C3%B6rter", "50%25": "50%2525"}
    text = lines_of(*(StoredRecord(qname, "a_1", qname.encode()) for qname in names))
    penstock("import", "etzel", input=text)
    for qname, queue in names.items():
        assert [record.payload.decode() for record in contents(client, queue)] == [qname]


def test_the_same_file_adds_nothing_twice(penstock: Command, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_text(lines_of(*(StoredRecord("q", f"a_{n}", b"x") for n in range(3))), encoding="utf-8")
    penstock("import", "etzel", str(file))
    again = penstock("import", "etzel", str(file), "--key", "5")
    assert again.stdout == "imported 0 records into 1 queue; 3 were imported before\n"
    assert "--again" in again.stderr
    assert len(contents(client, "q")) == 3
    (told,) = penstock.json("import", "etzel", str(file), "--again")
    assert told == {"imported": 3, "imported_before": 0, "expired": 0, "queues": ["q"], "bad": []}
    assert len(contents(client, "q")) == 6


def test_an_import_that_was_broken_off_goes_on(
    penstock: Command, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off after some batches, and once between staging and publishing: nothing is missing, nothing doubled."""
    monkeypatch.setattr(importing, "BATCH_LINES", 10)
    text = lines_of(*(StoredRecord(f"q{n % 3}", f"a_{n}", b"%d" % n) for n in range(95)))
    original = Client.publish
    calls = 0

    def publish(self: Client, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Client, "publish", publish)
    penstock("import", "etzel", input=text, code=130)
    imported = sum(len(contents(client, f"q{n}")) for n in range(3))
    assert 0 < imported < 95
    (told,) = penstock.json("import", "etzel", input=text)
    assert (told["imported"], told["imported_before"]) == (95 - imported, imported)
    for queue in range(3):
        assert [int(record.payload) for record in contents(client, f"q{queue}")] == list(range(queue, 95, 3))


def test_many_records_keep_their_order(penstock: Command, client: Client) -> None:
    text = lines_of(*(StoredRecord("q", f"a_{n}", b"%d" % n) for n in range(2_500)))
    assert penstock("import", "etzel", input=text).stdout == "imported 2500 records into 1 queue\n"
    assert [int(record.payload) for record in contents(client, "q")] == list(range(2_500))


BAD_LINES = {
    "no json": "is not {",
    "[1]": "is not {",
    '"text"': "is not {",
    '{"key": "zz", "value": "00"}': "both in hex",
    '{"key": 7, "value": "00"}': "both in hex",
    '{"key": "00"}': "is not {",
    "[" * 100_000: "is not {",
    '{"key": "61", "value": ""}': "the key has no qname and uid",
    '{"key": "612a62", "value": "00"}': "1 bytes cannot hold the header of 17",
    line_of(StoredRecord("x" * 300, "a_1", b"")): "more than 255 bytes",
    line_of(StoredRecord("q", "a_1", b"", available_at_s=2**62)): "after the year 9999",
    line_of(StoredRecord("q", "a_1", b"text", available_at_s=SOON_S), Layout.SEED): "is it of --layout seed?",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:25])
def test_a_bad_line_is_named_and_nothing_is_imported(penstock: Command, client: Client, line: str) -> None:
    good = line_of(StoredRecord("q", "a_1", b"good"))
    text = f"{good}\n{line.strip()}\n{good}"
    result = penstock("import", "etzel", input=text, code=1)
    bad, failure = result.stderr.splitlines()
    assert bad.startswith("penstock: line 3: ")
    assert BAD_LINES[line] in bad
    assert failure == "penstock: nothing was imported; --skip-bad leaves these lines out"
    assert "q" not in {view.name for view in client.queues()}
    skipped = penstock("import", "etzel", "--skip-bad", input=text)
    assert skipped.stdout == "imported 2 records into 1 queue; 1 were left out\n"
    assert skipped.stderr.startswith("penstock: line 3: ")


def test_the_other_layout_is_suspected(penstock: Command) -> None:
    text = line_of(StoredRecord("q", "a_1", b"a payload of some length", available_at_s=SOON_S))
    result = penstock("import", "etzel", "--layout", "seed", input=text, code=1)
    assert "is it of --layout etzel?" in result.stderr


def test_of_many_bad_lines_some_are_shown(penstock: Command) -> None:
    result = penstock("import", "etzel", input="x\n" * 20, code=1)
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()[:5]] == [f"line {n}" for n in range(1, 6)]
    assert "penstock: and 15 more lines" in result.stderr
    (told,) = penstock.json("import", "etzel", "--skip-bad", input="x\n" * 20)
    assert len(told["bad"]) == 20


def test_a_line_without_end_is_not_read_into_memory(penstock: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "LINE_BYTES_MAX", 100)
    assert "line 2 is longer than 100 bytes" in penstock("import", "etzel", input="\n" + "x" * 101, code=1).stderr


def test_what_the_node_refuses_is_named_and_the_import_can_go_on(penstock: Command, client: Client) -> None:
    client.queue("small").create(payload_bytes_max=5)
    records = [
        StoredRecord("q", "a_1", b"1"),
        StoredRecord("small", "a_2", b"too long"),
        StoredRecord("q", "a_3", b"2"),
    ]
    text = lines_of(*records)
    result = penstock("import", "etzel", input=text, code=4)
    assert result.stderr.startswith(
        "penstock: line 2 was refused: a payload is longer than 5 bytes (PAYLOAD_TOO_LARGE)"
    )
    assert contents(client, "q") == []
    skipped = penstock("import", "etzel", "--skip-bad", input=text)
    assert skipped.stdout == "imported 2 records into 2 queues; 1 were left out\n"
    assert "line 2: a payload is longer" in skipped.stderr
    assert len(contents(client, "q")) == 2


def test_a_limit_that_was_raised_lets_the_import_go_on(penstock: Command, client: Client) -> None:
    client.queue("small").create(payload_bytes_max=5)
    text = lines_of(StoredRecord("small", "a_1", b"fits"), StoredRecord("small", "a_2", b"too long"))
    penstock("import", "etzel", input=text, code=4)
    client.queue("small").set(payload_bytes_max=None)
    assert penstock("import", "etzel", input=text).stdout == "imported 2 records into 1 queue\n"


def test_a_key_outside_the_queue_s_range_is_refused_too(penstock: Command, client: Client) -> None:
    client.queue("ranged").create(key_range=(0, 9))
    text = line_of(StoredRecord("ranged", "a_1", b"x"))
    assert "line 1 was refused" in penstock("import", "etzel", "--key", "10", input=text, code=4).stderr


# Exporting.


def exported(penstock: Command, *args: str, layout: Layout = Layout.ETZEL) -> list[StoredRecord]:
    return records_in(penstock("export", "etzel", *args).stdout, layout)


@pytest.mark.parametrize("layout", list(Layout))
def test_a_queue_goes_out_and_comes_back(penstock: Command, client: Client, tmp_path: Path, layout: Layout) -> None:
    queue = client.queue("orders")
    queue.put(b"ready\xff", create=True, lease=300)
    queue.put("delayed", at=moment(SOON_S))
    queue.put("expiring", expires=moment(SOON_S))
    file = tmp_path / "out"
    result = penstock("export", "etzel", str(file), "--layout", layout.value)
    assert result.stdout == f"exported 3 records of 2 queues to {file}\n"
    records = records_in(file.read_text(encoding="utf-8"), layout)
    assert [record.payload for record in records] == [b"ready\xff", b"delayed", b"expiring"]
    assert [record.expires_at_s for record in records] == [NEVER_S, NEVER_S, SOON_S]
    assert abs(records[0].available_at_s - time.time()) < 60
    assert records[1].available_at_s == SOON_S
    assert [record.timeout_s for record in records] == ([300, 60, 60] if layout is Layout.SEED else [60, 60, 60])
    assert {record.qname for record in records} == {"orders"}
    uid = next(view.uid for view in client.queues() if view.name == "orders")
    assert [decode_uid(record.uid) for record in records] == [(uid, record.id) for record in contents(client, "orders")]
    with TestServer() as other, connect_sync(other.url) as other_client:
        Command(other.url)("import", "etzel", str(file), "--layout", layout.value)
        arrived = contents(other_client, "orders")
        assert [record.payload for record in arrived] == [b"ready\xff", b"delayed", b"expiring"]
        assert [record.state for record in arrived] == ["ready", "delayed", "ready"]
        assert [record.expires_at for record in arrived] == [None, None, moment(SOON_S)]
        again = exported(Command(other.url), "--layout", layout.value, layout=layout)
    assert [(each.payload, each.expires_at_s) for each in again] == [
        (each.payload, each.expires_at_s) for each in records
    ]


def test_what_is_leased_is_due_when_its_lease_ends_and_counts_its_deliveries(penstock: Command, client: Client) -> None:
    text = line_of(StoredRecord("q", "a_1", b"x", error_count=4))
    penstock("import", "etzel", input=text)
    message = client.queue("q").take(lease=1000)
    assert message is not None
    assert message.lease_until is not None
    (record,) = exported(penstock, "--queue", "q")
    assert record.error_count == 5
    assert 0 <= record.available_at_s - message.lease_until.timestamp() < 1


def test_only_the_queues_that_are_named(penstock: Command, client: Client) -> None:
    for name in ("a", "b", "c"):
        client.queue(name).put(name, create=True)
    named = ["--queue", "c", "--queue", "a", "--queue", "c"]
    assert [record.qname for record in exported(penstock, *named)] == ["c", "a"]
    assert "NO_SUCH_QUEUE" in penstock("export", "etzel", "--queue", "nowhere", code=4).stderr


def test_it_says_what_such_records_cannot_hold(penstock: Command, client: Client, tmp_path: Path) -> None:
    queue = client.queue("q")
    queue.put("a", key=5, create=True)
    queue.put("b", headers={"trace": "1"})
    queue.bury(queue.put("c").id)
    client.queue("%41").put("d", create=True)
    result = penstock("export", "etzel")
    assert [record.payload for record in records_in(result.stdout)] == [b"a", b"b"]
    *lost, total = result.stderr.splitlines()
    assert lost == [
        "not held by Etzel's records: 1 × key other than 0",
        "not held by Etzel's records: 1 × message with headers",
        "not held by Etzel's records: 1 × buried message",
        "not held by Etzel's records: 1 × message of %41, which is no name in Etzel",
    ]
    assert total == "exported 2 records of 2 queues"
    (told,) = penstock.json("export", "etzel", str(tmp_path / "out"))
    assert (told["records"], told["queues"], len(told["lost"])) == (2, 2, 4)
    assert json.loads(penstock("export", "etzel", "--json").stderr)["records"] == 2


def test_a_file_is_there_when_it_is_whole(penstock: Command, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("before", encoding="utf-8")
    penstock("export", "etzel", str(file), "--queue", "nowhere", code=4)
    assert file.read_text(encoding="utf-8") == "before"


# At the command line.


def test_at_a_terminal_it_says_what_to_type(node: TestServer, client: Client) -> None:
    line = line_of(StoredRecord("q", "a_1", b"typed"))
    with Terminal("import", "etzel", env={"PENSTOCK_URL": node.url}) as terminal:
        terminal.wait_for("end with Ctrl-D")
        terminal.type(f"{line}\x04")
        terminal.wait_for("imported 1 record")
        assert terminal.end() == 0
    assert [record.payload for record in contents(client, "q")] == [b"typed"]


@pytest.mark.parametrize(
    "args",
    [
        ["import"],
        ["import", "rabbit"],
        ["import", "etzel", "missing-file"],
        ["import", "etzel", "--layout", "other"],
        ["export", "etzel", "--layout", "other"],
    ],
)
def test_mistakes_are_usage_errors(penstock: Command, args: list[str]) -> None:
    penstock(*args, code=2)


@pytest.mark.parametrize("direction", ["import", "export"])
def test_help_says_what_a_line_is(direction: str) -> None:
    assert '{"key": hex, "value": hex}' in Command()(direction, "etzel", "--help").stdout.replace("\n ", "")
    assert "penstock storage" in Command()(direction, "--help").stdout


def test_what_comes_through_a_pipe_is_read_too(node: TestServer, client: Client) -> None:
    """As a file does: twice, though a pipe gives it only once."""
    command = [sys.executable, "-m", "penstock", "import", "etzel", "--url", node.url]
    text = lines_of(*(StoredRecord("q", f"a_{n}", b"x" * 1000) for n in range(100)))
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "imported 100 records into 1 queue\n", done.stderr
    assert len(contents(client, "q")) == 100


def test_without_a_node_nothing_is_imported(penstock: Command) -> None:
    text = line_of(StoredRecord("q", "a_1", b"x"))
    result = penstock("import", "etzel", "--url", "penstock://127.0.0.1:1", input=text, code=3)
    assert result.stdout == ""
    assert "is a node running there?" in result.stderr
