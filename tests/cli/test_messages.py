"""Messages from the command line: put, take, settle, look, change, redrive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.client.sync import Client
from penstock.testing import TestServer
from tests.cli.support import Command, Terminal

# Putting.


def test_put_an_argument(penstock: Command, client: Client, queue: str) -> None:
    assert penstock("put", queue, "hello").stdout == f"put message 1 into {queue}\n"
    assert client.queue(queue).get(1).payload == b"hello"


def test_put_says_all_that_can_be_said_of_a_message(penstock: Command, client: Client, queue: str) -> None:
    options = "--key -5 --delay 1h --expires 2h --header a=1 --header b=2 --dedup-key k --lease 5m".split()
    penstock("put", queue, "x", *options)
    record = client.queue(queue).get(1)
    assert (record.key, record.state, record.headers, record.dedup_key) == (-5, "delayed", {"a": "1", "b": "2"}, "k")
    assert record.available_at is not None
    assert record.expires_at is not None
    assert (record.available_at - record.published_at).total_seconds() == 3600
    assert (record.expires_at - record.published_at).total_seconds() == 7200
    client.queue(queue).kick(1)
    message = client.queue(queue).take()
    assert message is not None
    assert message.lease_until is not None
    assert (message.lease_until - message.published_at).total_seconds() >= 300


def test_put_at_a_time(penstock: Command, client: Client, queue: str) -> None:
    penstock("put", queue, "x", "--at", "2099-01-02T03:04:05Z", "--expires", "2100-01-01T00:00Z")
    (document,) = penstock.json("get", queue, "1")
    assert document["available_at"] == "2099-01-02T03:04:05.000000+00:00"
    assert document["expires_at"] == "2100-01-01T00:00:00.000000+00:00"


def test_put_a_file_as_one_message(penstock: Command, queue: str, tmp_path: Path) -> None:
    content = bytes(range(256)) + b"\n"
    (tmp_path / "blob").write_bytes(content)
    penstock("put", queue, "--file", str(tmp_path / "blob"))
    assert penstock("take", queue, "--ack", "--raw").stdout_bytes == content


def test_put_the_whole_of_standard_input_as_one_message(penstock: Command, queue: str) -> None:
    penstock("put", queue, "--file", "-", input=b"a\nb\n")
    assert penstock("get", queue, "1", "--raw").stdout_bytes == b"a\nb\n"


def test_put_lines_of_standard_input(penstock: Command, client: Client, queue: str) -> None:
    lines = ["first", "", "Grüße", "last without newline"]
    assert penstock("put", queue, "--key", "7", input="\n".join(lines)).stdout == f"put 4 messages into {queue}\n"
    records = client.queue(queue).peek(10)
    assert [(record.text, record.key) for record in records] == [(line, 7) for line in lines]


def test_put_many_lines_goes_in_batches_and_keeps_the_order(penstock: Command, client: Client, queue: str) -> None:
    lines = [str(number) for number in range(25_000)]
    documents = penstock.json("put", queue, input="\n".join(lines) + "\n")
    assert [document["id"] for document in documents] == list(range(1, 25_001))
    assert [record.text for record in client.queue(queue).browse(page=1000)] == lines


def test_a_line_longer_than_one_read_arrives_whole(penstock: Command, client: Client, queue: str) -> None:
    long = b"x" * 1_000_000
    penstock("put", queue, input=b"a\n" + long + b"\nb\n")
    assert [record.payload for record in client.queue(queue).peek(3)] == [b"a", long, b"b"]


def test_nothing_on_standard_input_puts_nothing(penstock: Command, queue: str) -> None:
    assert penstock("put", queue, input="").stdout == f"put 0 messages into {queue}\n"
    assert penstock("put", queue, "--atomic", input="").stdout == f"put 0 messages into {queue}\n"


def test_refused_lines_are_told_and_the_others_are_put(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).set(payload_bytes_max=3)
    result = penstock("put", queue, input="a\nlong\nb\n", code=4)
    assert result.stdout == f"put 2 messages into {queue}\n"
    assert result.stderr == "penstock: line 2 was refused (PAYLOAD_TOO_LARGE)\n"


def test_atomic_puts_all_or_none(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).set(payload_bytes_max=3)
    result = penstock("put", queue, "--atomic", input="a\nlong\nb\n", code=4)
    assert "message 2: " in result.stderr
    assert client.queue(queue).info().put == 0
    penstock("put", queue, "--atomic", input="a\nb\n")
    assert client.queue(queue).info().put == 2


def test_a_repeat_with_a_dedup_key_adds_nothing(penstock: Command, queue: str) -> None:
    penstock("put", queue, "a", "--dedup-key", "k")
    assert penstock.json("put", queue, "a", "--dedup-key", "k") == [{"queue": queue, "id": 1, "duplicate": True}]
    assert "nothing was added" in penstock("put", queue, "a", "--dedup-key", "k").stdout


def test_put_into_a_missing_queue_needs_create(penstock: Command, client: Client) -> None:
    assert "NO_SUCH_QUEUE" in penstock("put", "to-be-made", "a", code=4).stderr
    penstock("put", "to-be-made", "a", "--create")
    penstock("put", "to-be-made-2", "--create", input="a\n")
    assert client.queue("to-be-made-2").info().ready == 1


@pytest.mark.parametrize(
    "args",
    [
        ["x", "--file", "-"],
        ["--dedup-key", "k"],
        ["--atomic", "--create"],
        ["x", "--delay", "soon"],
        ["x", "--key", "a"],
    ],
)
def test_contradictions_are_usage_errors(penstock: Command, queue: str, args: list[str]) -> None:
    penstock("put", queue, *args, code=2)


# Taking and settling.


def test_take_shows_handle_and_payload(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put("hello\nworld", key=3, headers={"trace": "abc"})
    headline, *payload = penstock("take", queue).stdout.splitlines()
    assert payload == ["hello", "world"]
    handle, *rest = headline.split("  ")
    assert handle.startswith("1:")
    assert rest[:2] == ["key 3", "delivery 1"]
    assert rest[-1] == "trace=abc"
    assert client.queue(queue).info().leased == 1
    assert penstock("ack", queue, handle).stdout == "1 acknowledged\n"
    assert client.queue(queue).info().acked == 1


def test_take_from_an_empty_queue_ends_with_6(penstock: Command, queue: str) -> None:
    result = penstock("take", queue, code=6)
    assert (result.stdout, result.stderr) == ("", f"penstock: {queue} has nothing to take\n")
    assert penstock.json("take", queue, "--wait", "10ms", code=6) == []


def test_take_waits_for_a_message(node: TestServer, client: Client, queue: str) -> None:
    with Terminal("take", queue, "--wait", "forever", "--ack", env={"PENSTOCK_URL": node.url}) as terminal:
        while not client.status().connections > 1:
            pass
        client.queue(queue).put("here it is")
        terminal.wait_for("here it is")
        assert terminal.end() == 0
    assert client.queue(queue).info().acked == 1


def test_take_as_json(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many([b"text", b"\xff\xfe"])
    first, second = penstock.json("take", queue, "--count", "5", "--lease", "90s")
    assert (first["payload"], second["payload_base64"]) == ("text", "//4=")
    assert first["handle"].split(":")[0] == str(first["id"])
    assert first["lease_until"] is not None


def test_take_raw_with_many_has_a_newline_after_each(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many(["a", "b"])
    result = penstock("take", queue, "--count", "2", "--raw")
    assert result.stdout_bytes == b"a\nb\n"
    assert f"penstock ack {queue} 1:" in result.stderr, "the handles are not lost"


def test_at_a_terminal_take_tells_how_to_go_on(node: TestServer, client: Client, queue: str) -> None:
    client.queue(queue).put("x\x1b[31my")
    with Terminal("take", queue, env={"PENSTOCK_URL": node.url}) as terminal:
        assert terminal.end() == 0
        assert f"with: penstock ack {queue} 1:" in terminal.screen
        assert "x\\x1b[31my" in terminal.screen, "what a terminal would act on is escaped"


def test_take_follows_and_acknowledges_until_the_count_is_reached(
    penstock: Command, client: Client, queue: str
) -> None:
    client.queue(queue).put_many([str(number) for number in range(40)])
    result = penstock("take", queue, "--follow", "--ack", "--count", "30", "--raw")
    assert result.stdout.split() == [str(number) for number in range(30)]
    info = client.queue(queue).info()
    assert (info.acked, info.ready) == (30, 10)


@pytest.mark.parametrize("args", [["--follow"], ["--lease", "0"], ["--raw", "--json"], ["--count", "0"]])
def test_take_refuses_what_makes_no_sense(penstock: Command, queue: str, args: list[str]) -> None:
    penstock("take", queue, *args, code=2)


def test_nack_release_and_extend(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put("a")
    (taken,) = penstock.json("take", queue)
    assert penstock("extend", queue, taken["handle"], "--lease", "1h").stdout == "1 extended\n"
    assert penstock("nack", queue, taken["handle"], "--delay", "1h").stdout == "1 given back\n"
    assert client.queue(queue).get(1).state == "delayed"
    client.queue(queue).kick(1)
    (taken,) = penstock.json("take", queue)
    assert penstock.json("release", queue, taken["handle"]) == [{"count": 1, "lost": []}]
    record = client.queue(queue).get(1)
    assert (record.state, record.failures, record.releases) == ("ready", 1, 1)


def test_a_lost_lease_is_told_and_ends_with_1(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many(["a", "b"])
    first, second = penstock.json("take", queue, "--count", "2")
    penstock("ack", queue, first["handle"])
    result = penstock("ack", queue, first["handle"], second["handle"], code=1)
    assert result.stdout == "1 acknowledged\n"
    assert result.stderr == f"penstock: the lease {first['handle']} had ended before\n"
    assert penstock.json("nack", queue, first["handle"], code=1) == [{"count": 0, "lost": [first["handle"]]}]


def test_ack_and_take_in_one_request(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many(["a", "b"])
    (first,) = penstock.json("take", queue)
    (second,) = penstock.json("ack", queue, first["handle"], "--take", "--lease", "5m")
    assert second["payload"] == "b"
    penstock("ack", queue, second["handle"], "--take", code=6)
    assert client.queue(queue).info().acked == 2


# Looking.


def test_peek_and_browse(penstock: Command, client: Client, queue: str) -> None:
    penstock("peek", queue, code=6)
    client.queue(queue).put("second", key=5)
    client.queue(queue).put("first", key=1)
    client.queue(queue).put("later", delay=3600)
    assert [each["payload"] for each in penstock.json("peek", queue, "--count", "5")] == ["first", "second"]
    lines = penstock("browse", queue).stdout.splitlines()
    assert lines[0].split() == "ID KEY STATE DELIVERIES AGE UNTIL PAYLOAD".split()
    assert [line.split()[-1] for line in lines[1:]] == ["second", "first", "later"]
    assert [each["id"] for each in penstock.json("browse", queue, "--state", "delayed")] == [3]
    assert [each["id"] for each in penstock.json("browse", queue, "--keys", "1..5")] == [1, 2]
    assert [each["id"] for each in penstock.json("browse", queue, "--limit", "2")] == [1, 2]


def test_get_shows_all_that_is_known(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put("line 1\nline 2", key=4, headers={"a": "b\n"}, dedup_key="k")
    shown = penstock("get", queue, "1").stdout
    assert "key         4\n" in shown
    assert "header a    b\\n\n" in shown
    assert shown.endswith("\nline 1\nline 2\n")
    assert penstock.json("get", queue, "1")[0]["dedup_key"] == "k"
    assert "NO_SUCH_RECORD" in penstock("get", queue, "9", code=4).stderr


def test_what_failed_and_why_is_shown_wherever_one_looks(penstock: Command, client: Client, queue: str) -> None:
    client.queue(f"{queue}-dead").create()
    client.queue(queue).set(deliveries_max=2, dead_letter=f"{queue}-dead")
    client.queue(queue).put("x")
    for text in ("boom", "again"):
        message = client.queue(queue).take()
        assert message is not None
        penstock("nack", queue, f"{message.id}:{message.token}", "--failure", text)
    dead = f"{queue}-dead"
    shown = {line.split(None, 1)[0]: line for line in penstock("get", dead, "1").stdout.splitlines() if line.strip()}
    assert shown["last"].split()[-1] == "again"
    assert shown["reason"].split()[-1] == "nack"
    assert penstock.json("get", dead, "1")[0]["failure"] == "again"
    table = penstock("browse", dead).stdout.splitlines()
    assert table[0].split()[-2:] == ["FAILURE", "PAYLOAD"]
    assert table[1].split()[-2:] == ["again", "x"]
    assert "boom" in penstock("history", queue, "1").stdout
    told = [each["failure"] for each in penstock.json("history", queue, "1")]
    assert [text for text in told if text] == ["boom", "again", "again"]
    events = penstock.json("events", "--queue", queue)
    assert [each["failure"] for each in events if each["failure"]] == ["boom", "again", "again"]
    assert all("payload" not in each for each in events if each["failure"])
    penstock("bury", dead, "1", "--failure", "looked at it")
    assert client.queue(dead).get(1).failure == "looked at it"


def test_history_tells_a_message_s_life(penstock: Command, client: Client, queue: str) -> None:
    client.queue(f"{queue}-dead").create()
    client.queue(queue).set(deliveries_max=2, dead_letter=f"{queue}-dead")
    client.queue(queue).put("a", key=3, delay=3600)
    client.queue(queue).kick(1)
    for _ in range(2):
        message = client.queue(queue).take()
        assert message is not None
        message.nack()
    shown = [line.split() for line in penstock("history", queue, "1").stdout.splitlines()]
    assert [row[2] for row in shown[1:]] == ["put", "kicked", "taken", "returned", "taken", "returned", "dead-lettered"]
    assert shown[1][3:8] == ["native", "0", "-", "-", "key"]
    assert shown[4][4:6] == ["1", "nack"]
    assert shown[-1][-3:] == ["to", f"{queue}-dead", "1"]
    last = penstock.json("history", queue, "1")[-1]
    assert (last["event"], last["reason"]) == ("dead-lettered", "nack")
    assert (last["other_queue"], last["other_id"]) == (f"{queue}-dead", 1)
    arrived = penstock("history", f"{queue}-dead", "1").stdout.splitlines()[1]
    assert arrived.endswith(f"from {queue} 1, key 3")
    penstock("history", queue, "2", code=6)


# Changing.


def test_edit(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put("a")
    penstock("edit", queue, "1", "--key", "-9", "--delay", "1h")
    record = client.queue(queue).get(1)
    assert (record.key, record.state) == (-9, "delayed")
    penstock("edit", queue, "1", "--delay", "0")
    assert client.queue(queue).get(1).state == "ready"
    penstock("edit", queue, "1", code=2)


def test_delete_tells_what_is_missing(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many(["a", "b"])
    result = penstock("delete", queue, "1", "7", code=1)
    assert (result.stdout, result.stderr) == ("deleted 1\n", "penstock: message 7 is not there\n")
    assert penstock.json("delete", queue, "2") == [{"count": 1, "missing": []}]


def test_move_bury_and_kick(penstock: Command, client: Client, queue: str) -> None:
    client.queue(f"{queue}-2").create()
    client.queue(queue).put_many(["a", "b", "c", "d"])
    assert penstock("move", queue, "1", "--to", f"{queue}-2").stdout == "moved 1\n"
    assert client.queue(f"{queue}-2").get(1).payload == b"a"
    assert penstock("bury", queue, "2", "3", "4").stdout == "buried 3\n"
    assert penstock("bury", queue, "2", code=1).stdout == "buried 0\n"
    assert penstock("kick", queue, "3").stdout == "kicked 1\n"
    assert penstock("kick", queue, "--count", "1").stdout == "kicked 1\n"
    assert penstock.json("kick", queue, "--all") == [{"count": 1}]
    assert client.queue(queue).info().ready == 3
    penstock("kick", queue, code=2)


# Redriving.


@pytest.fixture
def dead_letters(client: Client, queue: str) -> str:
    """A queue with five dead letters of `queue`, keys 0 to 4."""
    client.queue(f"{queue}-dead").create()
    client.queue(queue).set(deliveries_max=1, dead_letter=f"{queue}-dead")
    for key in range(5):
        client.queue(queue).put(f"message {key}", key=key)
    client.queue(queue).nack(client.queue(queue).take_many(5))
    return f"{queue}-dead"


def test_redrive_brings_dead_letters_back_and_waits_for_the_end(
    penstock: Command, client: Client, queue: str, dead_letters: str
) -> None:
    assert penstock("redrive", dead_letters, "--keys", "1..2").stdout == "moved 2\n"
    assert [record.key for record in client.queue(queue).peek(9)] == [1, 2]
    assert penstock("redrive", dead_letters, "--reason", "lease-timeout").stdout == "moved 0\n"
    (ended,) = penstock.json("redrive", dead_letters, "--reason", "nack", "--max", "1", "--new-key", "9")
    assert (ended["moved"], ended["skipped"]) == (1, 0)
    assert [record.key for record in client.queue(queue).peek(9)] == [1, 2, 9]


def test_redrive_to_another_queue_at_a_rate(penstock: Command, client: Client, queue: str, dead_letters: str) -> None:
    client.queue(f"{queue}-other").create()
    assert penstock("redrive", dead_letters, "--to", f"{queue}-other", "--rate", "1000").stdout == "moved 5\n"
    assert client.queue(f"{queue}-other").info().ready == 5


def test_redrive_of_what_has_no_origin_is_told_as_skipped(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put("never died")
    result = penstock("redrive", queue)
    assert result.stdout == "moved 0, skipped 1\n"
    assert "no origin" in result.stderr


def test_a_detached_redrive_is_listed_and_can_be_stopped(
    penstock: Command, client: Client, queue: str, dead_letters: str
) -> None:
    (started,) = penstock.json("redrive", dead_letters, "--rate", "1", "--detach")
    job = started["job"]
    (listed,) = [each for each in penstock.json("jobs") if each["id"] == job]
    assert (listed["queue"], listed["target"], listed["done"]) == (dead_letters, None, False)
    assert penstock("jobs", "cancel", str(job)).stdout == f"redrive {job} is stopped\n"
    assert f"{job}" in penstock("jobs").stdout
    assert client.queue(queue).info().ready < 5
    assert "NO_SUCH_JOB" in penstock("jobs", "cancel", "1", code=4).stderr


def test_interrupting_the_watch_leaves_the_redrive_running(
    node: TestServer, client: Client, queue: str, dead_letters: str
) -> None:
    with Terminal("redrive", dead_letters, "--rate", "1", env={"PENSTOCK_URL": node.url}) as terminal:
        terminal.wait_for("redriving")  # the bar, which comes after a second
        terminal.interrupt()
        assert terminal.end() == 130
        assert "goes on; stop it with: penstock jobs cancel" in terminal.screen
    (job,) = [each for each in client.jobs() if each.queue == dead_letters]
    assert not job.done
    client.cancel_job(job.id)


def test_the_url_of_a_group_holds_for_its_commands(node: TestServer, queue: str) -> None:
    elsewhere = Command("penstock://127.0.0.1:1")
    elsewhere("jobs", code=3)
    assert "NO_SUCH_JOB" in elsewhere("jobs", "--url", node.url, "cancel", "1", code=4).stderr


def test_json_is_one_document_a_line(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put("line 1\nline 2")
    (line,) = penstock("peek", queue, "--json").stdout.splitlines()
    assert json.loads(line)["payload"] == "line 1\nline 2"
