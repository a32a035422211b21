"""`penstock queue`: make, list, show, set, delete, purge, pause, resume."""

from __future__ import annotations

import pytest

from penstock.cli.queue import SETTINGS
from penstock.client import NoSuchQueue
from penstock.client.sync import Client
from penstock.engine.commands import QueueChanges, QueueSettings
from penstock.testing import TestServer
from tests.cli.support import Command, Terminal


def test_every_setting_of_a_queue_can_be_said() -> None:
    """The command's options are the engine's settings, in seconds where the engine counts milliseconds."""
    wire_names = {f"{name}_ms" if name in ("lease", "expires", "dedup_window") else name for name in SETTINGS}
    assert wire_names == set(QueueChanges.__struct_fields__)
    fixed = {"implementation", "key_range", "descending"}
    assert wire_names | fixed == set(QueueSettings.__struct_fields__)


def test_create_with_all_settings(penstock: Command, client: Client) -> None:
    penstock("queue", "create", "made-dead")
    options = (
        "--implementation qa --keys 0..9 --descending --size-max 10 --payload-bytes-max 100 --lease 30s "
        "--deliveries-max 3 --dead-letter made-dead --expires 1h --dead-letter-expired true "
        "--dedup-window 5m --dedup-keys-max 50"
    )
    shown = penstock("queue", "create", "made", *options.split()).stdout
    assert shown == "queue made is made\n"
    assert client.queue("made").info().settings == QueueSettings(
        implementation=2,
        size_max=10,
        payload_bytes_max=100,
        key_range=(0, 9),
        descending=True,
        lease_ms=30_000,
        deliveries_max=3,
        dead_letter="made-dead",
        expires_ms=3_600_000,
        dead_letter_expired=True,
        dedup_window_ms=300_000,
        dedup_keys_max=50,
    )


def test_create_again_is_refused_unless_an_equal_one_will_do(penstock: Command, queue: str) -> None:
    assert "QUEUE_EXISTS" in penstock("queue", "create", queue, code=4).stderr
    assert penstock("queue", "create", queue, "--if-absent").stdout == f"queue {queue} was there already\n"
    (made,) = penstock.json("queue", "create", queue, "--if-absent")
    assert made["created"] is False


def test_set_changes_what_is_said_and_none_takes_a_limit_away(penstock: Command, client: Client, queue: str) -> None:
    penstock("queue", "set", queue, "--size-max", "5", "--lease", "2m")
    settings = client.queue(queue).info().settings
    assert (settings.size_max, settings.lease_ms) == (5, 120_000)
    penstock("queue", "set", queue, "--size-max", "none")
    settings = client.queue(queue).info().settings
    assert (settings.size_max, settings.lease_ms) == (None, 120_000)
    penstock("queue", "set", queue, code=2)


def test_list_and_show(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many(["a", "b"])
    client.queue(queue).put("later", delay=3600)
    lines = penstock("queue", "list").stdout.splitlines()
    assert lines[0].split() == "READY DELAYED LEASED BURIED PUT ACKED SIZE OLDEST STATE QUEUE".split()
    assert any(line.endswith(" ''") for line in lines), "the default queue is shown as it is typed"
    (row,) = [line.split() for line in lines if line.endswith(f" {queue}")]
    assert row[:6] == ["2", "1", "0", "0", "3", "0"]
    (document,) = [each for each in penstock.json("queue", "list") if each["name"] == queue]
    assert (document["ready"], document["delayed"], document["settings"]["lease_ms"]) == (2, 1, 60_000)
    shown = penstock("queue", "show", queue).stdout
    assert "size max             none\n" in shown
    assert "ready                2\n" in shown
    assert penstock.json("queue", "show", queue)[0]["uid"] == document["uid"]


def test_pause_and_resume(penstock: Command, client: Client, queue: str) -> None:
    penstock("queue", "pause", queue)
    assert client.queue(queue).info().paused
    assert penstock.json("queue", "resume", queue) == [{"queue": queue, "state": "open"}]
    assert not client.queue(queue).info().paused


@pytest.mark.parametrize("command", ["delete", "purge"])
def test_what_cannot_be_undone_needs_a_yes_where_nobody_can_be_asked(
    penstock: Command, client: Client, queue: str, command: str
) -> None:
    client.queue(queue).put("a")
    assert "say --yes" in penstock("queue", command, queue, code=2).stderr
    assert client.queue(queue).info().ready == 1


def test_purge_and_delete_with_yes(penstock: Command, client: Client, queue: str) -> None:
    client.queue(queue).put_many(["a", "b"])
    assert penstock("queue", "purge", queue, "--yes").stdout == "purged 2\n"
    assert penstock("queue", "delete", queue, "--yes").stdout == f"queue {queue} is deleted\n"
    with pytest.raises(NoSuchQueue):
        client.queue(queue).info()


def test_at_a_terminal_it_asks_first(node: TestServer, client: Client, queue: str) -> None:
    client.queue(queue).put("a")
    env = {"PENSTOCK_URL": node.url}
    with Terminal("queue", "delete", queue, env=env) as terminal:
        terminal.wait_for(f"Delete queue {queue} with 1 messages? [y/N]: ")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert client.queue(queue).info().ready == 1
    with Terminal("queue", "delete", queue, env=env) as terminal:
        terminal.wait_for("[y/N]: ")
        terminal.type("y\n")
        assert terminal.end() == 0
    with pytest.raises(NoSuchQueue):
        client.queue(queue).info()


def test_the_default_queue_has_the_empty_name(penstock: Command) -> None:
    assert "queue                ''\n" in penstock("queue", "show", "").stdout
    assert "DEFAULT_QUEUE" in penstock("queue", "delete", "", "--yes", code=4).stderr


def test_a_bad_name_is_refused_by_the_node(penstock: Command) -> None:
    assert "BAD_QUEUE_NAME" in penstock("queue", "create", "two words", code=4).stderr
