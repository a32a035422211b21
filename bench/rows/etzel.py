"""The Etzel door: publishing, fetching with acknowledgement, workers that sleep, and a client that reads no answers."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from bench.cpu import memory_bytes, peak_memory_bytes
from bench.dialogues import etzel
from bench.dialogues.shapes import Pipelined
from bench.errors import ConnectionEnded, NoAnswer, ServerFailed
from bench.load import ANSWER_WAIT_S, Dialogue, receive_some
from bench.model import Bench, Bound, Entry, Goal, Plan, Row, Sample
from bench.rows.common import drain, open_connections, run_for, sample_of
from bench.servers import EtzelPenstock

PUBLISH = "penstock, PUB"
FETCH = "penstock, FET + ACK"
SLEEPERS = "penstock, sleeping workers"
BURST = "penstock, burst"
FULL_BURST = "penstock, largest burst"
_CONNECTIONS = 8
_WINDOW = 100
_QUEUE = b"bench-sleepers"
_SLEEPERS_MB_MAX = 20
_BURST_MB_MAX = 64
_RECEIVE_BUFFER_BYTES = 64 * 1024
"""So small that answers which nobody reads soon fill it."""
_STALLED_S = 1.0
"""A server that takes nothing for so long has stopped reading, and will not go on before its answers are read."""
_FRAMES_PER_SEND = 500


def _measure_publish(bench: Bench) -> Sample:
    def make() -> Dialogue:
        return Pipelined(etzel.put_requests(_WINDOW), etzel.ok_counter(), _WINDOW)

    with EtzelPenstock(bench.workshop) as server, open_connections(_CONNECTIONS, server.connect_etzel) as sockets:
        meter = server.meter()
        return sample_of(meter, run_for(meter, sockets, make, bench.plan.seconds))


def _measure_fetch(bench: Bench) -> Sample:
    with EtzelPenstock(bench.workshop) as server, open_connections(_CONNECTIONS, server.connect_etzel) as sockets:
        return drain(server, sockets, lambda: etzel.FetchAndAck(_WINDOW), bench.plan, bench.plan.fill_records_max)


def _measure_sleepers(bench: Bench) -> Sample:
    """What many workers cost that sleep on one queue. One message then wakes them all: they did sleep."""
    with EtzelPenstock(bench.workshop) as server:
        empty_bytes = memory_bytes(server.pids())
        with open_connections(bench.plan.sleepers, server.connect_etzel) as sockets:
            sleepers = [etzel.Sleeper(connection, _QUEUE) for connection in sockets]
            for sleeper in sleepers:
                sleeper.fall_asleep()
            full_bytes = memory_bytes(server.pids())
            with server.connect_etzel() as producer:
                producer.sendall(etzel.request(b'{"cmd":"PUB","qname":"%s","msg":"wake up"}' % _QUEUE))
                for sleeper in sleepers:
                    sleeper.wake()
    # A server frees memory of its start while it waits: with few sleepers it may end with less than it had.
    return {"memory_mb": full_bytes / 1e6, "growth_mb": max(0, full_bytes - empty_bytes) / 1e6}


def _measure_burst(messages: int) -> Callable[[Bench], Sample]:
    """Peak memory of a burst, above what the same messages take after a restart; none of them may be missing then."""

    def measure(bench: Bench) -> Sample:
        with EtzelPenstock(bench.workshop) as server:
            meter = server.meter()
            with server.connect_etzel(_RECEIVE_BUFFER_BYTES) as connection, meter:
                _Burst(connection, messages).run()
            peak_bytes = peak_memory_bytes(server.pids())
            server.kill()
            server.start()
            found = server.status().records
            if found != messages:
                raise ServerFailed(server.name, f"{messages} messages were published, {found} came back")
            data_bytes = memory_bytes(server.pids())
            return {
                **meter.figures(messages),
                "memory_mb": peak_bytes / 1e6,
                "growth_mb": max(0, peak_bytes - data_bytes) / 1e6,
            }

    return measure


class _Burst:
    """Publishes without a look at the answers while the server takes it; then reads them and sends the rest."""

    def __init__(self, connection: socket.socket, messages: int) -> None:
        self._connection = connection
        self._left = messages
        self._unanswered = messages
        self._count_answers = etzel.ok_counter()
        self._data = memoryview(b"")

    def run(self) -> None:
        """Until every message is answered."""
        connection = self._connection
        connection.setblocking(False)
        poller = select.poll()
        poller.register(connection, select.POLLOUT)
        while self._has_more() and poller.poll(_STALLED_S * 1000):
            self._send()
        poller.modify(connection, select.POLLIN | select.POLLOUT)
        while self._unanswered:
            if not self._has_more():
                poller.modify(connection, select.POLLIN)
            events = poller.poll(ANSWER_WAIT_S * 1000)
            if not events:
                raise NoAnswer(ANSWER_WAIT_S)
            if events[0][1] & ~select.POLLOUT:
                self._unanswered -= self._count_answers(receive_some(connection))
            elif events[0][1] & select.POLLOUT:
                self._send()

    def _has_more(self) -> bool:
        if not self._data and self._left:
            count = min(_FRAMES_PER_SEND, self._left)
            self._left -= count
            self._data = memoryview(etzel.PUB * count)
        return bool(self._data)

    def _send(self) -> None:
        try:
            self._data = self._data[self._connection.send(self._data) :]
        except (BrokenPipeError, ConnectionResetError):
            raise ConnectionEnded from None


def rows(plan: Plan) -> tuple[Row, ...]:
    """The rows of this subject; the largest burst only where it is planned."""
    bursts = {BURST: plan.burst_messages, FULL_BURST: plan.full_burst_messages}
    bursts = {label: messages for label, messages in bursts.items() if messages}
    return (
        Row(
            name="etzel",
            title=f"Etzel door, {_CONNECTIONS} connections, windows of {_WINDOW}",
            entries=(Entry(PUBLISH, _measure_publish), Entry(FETCH, _measure_fetch)),
            goals=(Goal(PUBLISH, "rate_per_s", Bound(30_000)), Goal(FETCH, "rate_per_s", Bound(20_000))),
            known="the original program, which syncs nothing, 15,300 to 16,300 / 8,100 to 10,400",
            known_where="on 2 cores beside other jobs",
        ),
        Row(
            name="etzel-sleepers",
            title=f"Etzel door, {plan.sleepers:,} workers asleep",
            entries=(Entry(SLEEPERS, _measure_sleepers),),
            goals=(Goal(SLEEPERS, "growth_mb", Bound(_SLEEPERS_MB_MAX), most=True),),
            rounds_max=1,
        ),
        Row(
            name="etzel-burst",
            title=" / ".join(f"{messages:,}" for messages in bursts.values())
            + " PUBs on one connection that reads no answers; peak memory, growth above that of the messages alone",
            entries=tuple(Entry(label, _measure_burst(messages)) for label, messages in bursts.items()),
            goals=tuple(Goal(label, "growth_mb", Bound(_BURST_MB_MAX), most=True) for label in bursts),
            rounds_max=1,
        ),
    )
