"""Whatever one side says in a dialect, the other side hears, however the bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.taskflux import ClientConnection, Dialect, Limits, ServerConnection
from penstock.wire.taskflux import messages as m
from penstock.wire.taskflux.errors import ProtocolError
from tests.wire.taskflux.support import FRAMED, HANDSHAKE, UNFRAMED, client_for, drain, pieces_of, server_for

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.binary(max_size=255)
payloads = st.binary(max_size=300)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
sizes = st.lists(st.integers(1, 50), min_size=1, max_size=8)
node_ids = st.integers(0, 2**31 - 1)

commands = st.one_of(
    st.builds(m.Enqueue, names, int64s, payloads),
    st.builds(m.Dequeue, names, st.integers(0, 2**32 - 1)),
    st.builds(m.Count, names),
    st.builds(m.CreateQueue, names, int32s, int32s, int32s, st.none() | st.tuples(int64s, int64s)),
    st.builds(m.DeleteQueue, names),
    st.just(m.ListQueues()),
)
requests = st.one_of(
    commands, st.just(m.Acknowledge()), st.just(m.NegativeAcknowledge()), st.just(m.ClusterMetadataRequest())
)
framed_requests = st.one_of(
    st.builds(m.Enqueue, st.binary(max_size=400), int64s, payloads),
    st.builds(m.Dequeue, st.binary(max_size=400)),
    st.builds(m.Count, st.binary(max_size=400)),
)

violations = st.one_of(
    st.builds(m.GenericViolation, texts),
    st.builds(m.QueueSizeViolation, int32s),
    st.builds(m.PayloadSizeViolation, int32s),
    st.builds(m.KeyRangeViolation, int64s, int64s),
)
queue_infos = st.builds(m.QueueInfo, names, int32s, st.dictionaries(texts, texts, max_size=4))
unframed_replies = st.one_of(
    st.just(m.Ok()),
    st.just(m.DequeueEmpty()),
    st.builds(m.CountResult, int32s),
    st.builds(m.ListResult, st.lists(queue_infos, max_size=4)),
    violations,
    st.builds(m.NotLeader, st.none() | node_ids),
    st.builds(m.ClusterMetadata, st.lists(texts, max_size=4), st.none() | node_ids, node_ids),
)
replies = {
    Dialect.SEED000: st.one_of(
        unframed_replies,
        st.builds(m.DequeueResult, int64s, payloads),
        st.builds(m.ErrorResult, int32s, texts),
        st.builds(m.ErrorPacket, int32s, texts),
    ),
    Dialect.CSHARP: st.one_of(
        unframed_replies,
        st.builds(m.DequeueResult, int64s, payloads, st.integers(0, 2**64 - 1)),
        st.builds(m.ErrorResult, st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 9]), texts),
        st.builds(m.ErrorPacket, st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 9]), texts),
    ),
}
framed_replies = st.one_of(
    st.builds(m.EnqueueResult, st.booleans()),
    st.just(m.DequeueEmpty()),
    st.builds(m.DequeueResult, int64s, payloads),
    st.builds(m.CountResult, int32s),
    st.builds(m.ErrorResult, st.integers(0, 2), texts.filter(bool)),
    st.just(m.NoResult()),
    st.builds(m.ErrorPacket, st.just(0), texts),
    st.builds(m.NotLeader, st.none() | st.integers(1, 2**31 - 1)),
)
replies |= dict.fromkeys(FRAMED, framed_replies)


def feed_in_pieces(connection: ServerConnection | ClientConnection, data: bytes, piece_sizes: list[int]) -> list[Any]:
    events: list[Any] = []
    for piece in pieces_of(data, piece_sizes):
        connection.receive_data(piece)
        events += drain(connection)
    return events


@pytest.mark.parametrize("dialect", UNFRAMED)
@given(said=st.lists(requests, max_size=6), piece_sizes=sizes)
def test_requests_of_seed_000(dialect: Dialect, said: list[m.Request], piece_sizes: list[int]) -> None:
    data = b"".join(map(ClientConnection(dialect).send, said))
    server = server_for(dialect)
    assert feed_in_pieces(server, data, piece_sizes) == said
    assert server.buffered_bytes == 0


@pytest.mark.parametrize("dialect", FRAMED)
@given(said=st.lists(framed_requests, max_size=6), piece_sizes=sizes)
def test_requests_of_seed_001(dialect: Dialect, said: list[m.Request], piece_sizes: list[int]) -> None:
    data = b"".join(map(ClientConnection(dialect).send, said))
    server = server_for(dialect)
    assert feed_in_pieces(server, data, piece_sizes) == said
    assert server.buffered_bytes == 0


@pytest.mark.parametrize("dialect", list(Dialect))
@given(data=st.data(), piece_sizes=sizes)
def test_replies(dialect: Dialect, data: st.DataObject, piece_sizes: list[int]) -> None:
    said = data.draw(st.lists(replies[dialect], max_size=6))
    server = server_for(dialect)
    client = client_for(dialect)
    assert feed_in_pieces(client, b"".join(map(server.send, said)), piece_sizes) == said
    assert client.buffered_bytes == 0


@given(patch=int32s, piece_sizes=sizes, success=st.tuples(st.booleans(), st.booleans()), reason=texts)
def test_handshake(patch: int, piece_sizes: list[int], success: tuple[bool, bool], reason: str) -> None:
    client, server = ClientConnection(), ServerConnection()
    said: list[Any] = [m.AuthorizationRequest(), m.BootstrapRequest(1, 0, patch)]
    assert feed_in_pieces(server, b"".join(map(client.send, said)), piece_sizes) == said
    answers: list[Any] = [m.AuthorizationResponse(success[0], "" if success[0] else reason)]
    if success[0]:
        answers.append(m.BootstrapResponse(success[1], "" if success[1] else reason))
    assert feed_in_pieces(client, b"".join(map(server.send, answers)), piece_sizes) == answers


@given(st.binary(max_size=200), sizes, st.booleans())
def test_junk_gives_events_or_a_protocol_error_and_the_cut_makes_no_difference(
    junk: bytes, piece_sizes: list[int], shaken: bool
) -> None:
    outcomes: list[Any] = []
    for cut in ([10**6], piece_sizes):
        server = ServerConnection(Dialect.SEED000, Limits(payload_bytes_max=100))
        events: list[Any] = []
        try:
            for piece in pieces_of(HANDSHAKE * shaken + junk, cut):
                server.receive_data(piece)
                while not isinstance(event := server.next_event(), m.NeedData):
                    events.append(event)
        except ProtocolError as error:
            events.append((type(error), str(error)))
        outcomes.append(events)
    assert outcomes[0] == outcomes[1]
