"""What failed, why, and who worked on it: shown by the record, the dead letter and the history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.client import Backoff, Client, Message, PenstockError, connect, connect_sync, sync, worker
from penstock.client.events import read_events
from penstock.client.failures import failure_of, reason_number, short_failure
from penstock.client.history import HistoryReader
from penstock.engine.journal import DEAD_LETTERED, KINDS, RETURNED
from tests.client.conftest import Run
from tests.client.scripted import start

testing = pytest.importorskip("penstock.testing")


@asynccontextmanager
async def meet() -> AsyncIterator[tuple[str, Client]]:
    async with testing.TestServer() as server, connect(server.url) as client:
        await client.queue("dead").create()
        await client.queue("q").create(deliveries_max=2, dead_letter="dead")
        yield server.url, client


TOLD = ["ValueError: try 1 failed", "ValueError: try 2 failed", "ValueError: try 2 failed"]
"""Two nacks, and the dead letter that the second one made."""
COPY_TOLD = TOLD[-1]
"""What the event says that brings the dead letter into its queue."""


def test_the_exception_of_a_worker_is_known_everywhere(run: Run) -> None:
    async def main() -> None:
        seen: list[str] = []

        @worker("q", backoff=Backoff(first=0, cap=0))
        async def work(message: Message) -> None:
            seen.append(message.failure)
            raise ValueError(f"try {message.deliveries} failed")

        async with meet() as (url, client):
            serving = start(work.serve(client))
            await client.queue("q").put("x")
            while not (await client.queue("dead").info()).ready:
                await asyncio.sleep(0.01)
            work.stop()
            await serving
            (letter,) = [record async for record in client.queue("dead").browse()]
            assert (letter.failure, letter.reason) == ("ValueError: try 2 failed", "nack")
            assert letter.origin is not None
            assert (letter.origin.queue, letter.origin.reason, letter.origin.failures) == ("q", "nack", 2)
            assert seen == ["", "ValueError: try 1 failed"]
            history = await client.queue("q").history(1)
            assert (history[0].kind_name, history[0].door_name, history[0].reason_name) == ("put", "native", "")
            assert (history[-1].kind_name, history[-1].reason_name) == ("dead-lettered", "nack")
            assert [event.text for event in history if event.kind in (RETURNED, DEAD_LETTERED)] == TOLD
            assert await asyncio.get_running_loop().run_in_executor(None, told, url) == [*TOLD, COPY_TOLD]

    def told(url: str) -> list[str]:
        """As the raw history says it: the text, and no payload."""
        with HistoryReader(url) as reader:
            reach = reader.reach()
            events = list(read_events(reader, reach.first_index, reach.applied_index))
        assert all(event.is_whole for event in events)
        assert [event.payload for event in events if event.view.text] == [b""] * 4
        return [event.view.text for event in events if event.view.text]

    run(main)


def test_the_blocking_client_gives_texts_too() -> None:
    with testing.TestServer() as server, connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        queue.put_many(["a", "b", "c"])
        first, second, third = queue.take_many(3)
        first.nack(failure="one")
        second.bury(failure="two")
        queue.nack([third], failure="three")
        assert [queue.get(number).failure for number in (1, 2, 3)] == ["one", "two", "three"]
        queue.bury(3, failure="four")
        assert (queue.get(3).failure, queue.get(3).reason) == ("four", "operator")
        message = queue.take()
        assert isinstance(message, sync.Message)
        assert message.failure == "one"


def test_long_texts_are_cut_between_characters() -> None:
    assert short_failure("x" * 1024) == "x" * 1024
    for text in ("x" * 1025, "ä" * 600, "€" * 400, "😀" * 300):
        cut = short_failure(text)
        assert cut.endswith("…")
        assert 1018 <= len(cut.encode()) <= 1024
        assert text.startswith(cut[:-1])
    assert short_failure("half \ud800") == "half ?"


def test_an_exception_is_its_type_and_message() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert failure_of(KeyError("id")) == "KeyError: 'id'"
    assert failure_of(TimeoutError()) == "TimeoutError"
    assert failure_of(Broken()) == "Broken"


def test_reasons_go_by_name() -> None:
    assert [reason_number(reason) for reason in ("nack", "lease timeout", "", 8)] == [1, 7, 0, 8]
    with pytest.raises(ValueError, match="is not a reason"):
        reason_number("bad luck")


def test_the_name_of_a_worker_is_shown_while_it_holds_a_message_and_stays_in_the_history() -> None:
    with testing.TestServer() as server, connect_sync(server.url) as client:
        queue = client.queue("q")
        queue.create()
        queue.put("x")
        with connect_sync(server.url, name="worker größer 7") as named:
            message = named.queue("q").take()
            assert message is not None
            assert queue.get(1).holder == "worker größer 7"
            assert [record.holder for record in queue.browse()] == ["worker größer 7"]
            message.nack(failure="no")
            assert queue.get(1).holder == ""
        names = {KINDS[event.kind][0]: event.owner_name for event in queue.history(1)}
        assert names == {"put": "", "taken": "worker größer 7", "returned": "worker größer 7"}
        while server.server.node.engine.state.owner_names:
            time.sleep(0.01)
        with HistoryReader(server.url) as reader:
            reach = reader.reach()
            events = list(read_events(reader, reach.first_index, reach.applied_index))
        assert [KINDS[event.view.kind][0] for event in events if event.view.owner_name] == [
            "owner named",
            "taken",
            "returned",
            "owner gone",
        ]


def test_a_name_goes_with_its_connection_and_a_client_that_only_looks_leaves_none() -> None:
    with testing.TestServer() as server, connect_sync(server.url) as client:
        client.queue("q").create()
        state = server.server.node.engine.state
        with connect_sync(server.url, name="looks") as looking:
            looking.queue("q").info()
            assert state.owner_names == {}
            looking.queue("q").take()
            looking.queue("q").put("x")
            assert list(state.owner_names.values()) == ["looks"]
        while state.owner_names:
            client.ping()


def test_a_name_that_cannot_be_shown_is_refused() -> None:
    with testing.TestServer() as server, pytest.raises(PenstockError, match="printable"):
        connect_sync(server.url, name="bell \a", retry_timeout=0).close()
