"""Dialogues: a load sends what it should, counts only what was answered as a success, and knows when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.dialogues import beanstalkd, native, redis, taskflux
from bench.dialogues.shapes import PAYLOAD, Pipelined, Ring, StampedPuts
from bench.errors import UnexpectedAnswer
from bench.load import Dialogue
from penstock.engine.commands import ACK, encode
from penstock.wire.native.frames import FrameReader, encode_frame
from penstock.wire.native.messages import ANSWER, REFUSED


def test_a_ring_repeats_its_requests_in_turn() -> None:
    ring = Ring([b"a", b"b", b"c"])
    assert [ring.take(2), ring.take(3), ring.take(1)] == [b"ab", b"cab", b"c"]


def test_a_ring_refuses_requests_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="equal lengths"):
        Ring([b"a", b"bc"])


@given(window=st.integers(1, 20), limit=st.integers(1, 60), data=st.data())
def test_a_pipeline_keeps_to_its_window_and_its_limit(window: int, limit: int, data: st.DataObject) -> None:
    load = Pipelined(Ring([b"x"] * window), len, window, messages_per_request=3, requests_max=limit)
    sent = len(load.start())
    answered = 0
    while not load.finished:
        assert 0 < sent - answered <= window
        count = data.draw(st.integers(1, sent - answered))
        answered += count
        sent += len(load.receive(b"." * count))
    assert sent == answered == limit
    assert load.completed == 3 * limit


def test_a_stopped_pipeline_asks_for_nothing_more_and_waits_for_the_rest() -> None:
    load = Pipelined(Ring([b"x"] * 4), len, 4)
    load.start()
    load.stop()
    ends = [(load.receive(answers), load.finished) for answers in (b"...", b".")]
    assert ends == [(b"", False), (b"", True)]
    assert load.completed == 4


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data cut at these places."""
    edges = [0, *sorted({cut % len(data) for cut in cuts} - {0}), len(data)]
    for start, end in pairwise(edges):
        yield data[start:end]


REDIS_TAKEN = b"*1\r\n*2\r\n$1\r\nq\r\n*2\r\n" + b"".join(
    b"*2\r\n$15\r\n1700000000000-%d\r\n*2\r\n$1\r\nd\r\n$100\r\n%s\r\n" % (n, PAYLOAD) for n in (0, 1)
)
BEANSTALKD_TAKEN = b"".join(b"RESERVED %d 100\r\n%s\r\n" % (n, PAYLOAD) for n in (7, 8))
DELIVERIES = [[n, 0, PAYLOAD, 1, 5, b"", 9] for n in (7, 8)]
NATIVE_TAKEN = encode_frame(ANSWER, 0, encode([44, DELIVERIES]))
NATIVE_ACK_TAKEN = encode_frame(ANSWER, 1, encode([[2, []], [45, DELIVERIES]]))
NATIVE_LAST = encode_frame(ANSWER, 2, encode([[2, []], [46, []]]))


@pytest.mark.parametrize(
    ("make", "conversation"),
    [
        (lambda: redis.Take(2), [REDIS_TAKEN, b":2\r\n:2\r\n" + REDIS_TAKEN, b":2\r\n:2\r\n*-1\r\n"]),
        (
            lambda: beanstalkd.Take(2),
            [BEANSTALKD_TAKEN, b"DELETED\r\n" * 2 + BEANSTALKD_TAKEN, b"DELETED\r\n" * 2 + b"TIMED_OUT\r\n" * 2],
        ),
        (lambda: native.AckAndTake(2), [NATIVE_TAKEN, NATIVE_ACK_TAKEN, NATIVE_LAST]),
    ],
    ids=["redis", "beanstalkd", "penstock"],
)
@given(cuts=st.lists(st.integers(0, 1000), max_size=6))
def test_taking_does_not_depend_on_how_answers_are_cut(
    make: Callable[[], Dialogue], conversation: list[bytes], cuts: list[int]
) -> None:
    """The bytes sent, the messages counted and the end are the same as with answers that come whole."""
    whole, cut = make(), make()
    assert whole.start() == cut.start()
    for answer in conversation:
        assert not cut.finished
        assert b"".join(cut.receive(piece) for piece in pieces(answer, cuts)) == whole.receive(answer)
    assert cut.finished
    assert cut.completed == whole.completed == 4
    assert not cut.latencies_ns


def test_one_at_a_time_redis_waits_for_both_ends_before_it_takes_again() -> None:
    load = redis.Take(1)
    read = load.start()
    taken = b"*1\r\n*2\r\n$1\r\nq\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nd\r\n$100\r\n%s\r\n" % PAYLOAD
    assert load.receive(taken) == redis.command(b"XACK", b"q", b"g", b"1-0") + redis.command(b"XDEL", b"q", b"1-0")
    assert load.receive(b":1\r\n") == b""
    assert load.completed == 0
    assert load.receive(b":1\r\n") == read
    assert load.completed == len(load.latencies_ns) == 1


def test_take_then_ack_counts_a_message_when_its_ack_is_answered() -> None:
    load = native.TakeThenAck()
    take = load.start()
    ack = load.receive(encode_frame(ANSWER, 0, encode([44, DELIVERIES[:1]])))
    assert ack == encode_frame(ACK, 1, encode(["", [[7, 44]]]))
    assert load.completed == 0
    assert load.receive(encode_frame(ANSWER, 1, encode([1, []]))) == take
    assert load.completed == len(load.latencies_ns) == 1
    load.receive(encode_frame(ANSWER, 0, encode([0, []])))
    assert load.finished


@pytest.mark.parametrize(
    ("receive", "answer"),
    [
        (redis.count_put_answers, b"-OOM command not allowed\r\n"),
        (redis.count_put_answers, b"$15\r\n1700000000000-0\r\n-ERR no\r\n"),
        (beanstalkd.count_put_answers, b"OUT_OF_MEMORY\r\n"),
        (native.put_counter(), encode_frame(REFUSED, 0, encode([1]))),
        (native.put_counter(2), encode_frame(ANSWER, 0, encode([1, 1, [[1, 2, 0]]]))),
        (native.TakeThenAck().receive, encode_frame(REFUSED, 0, encode([1]))),
        (redis.Take(1).receive, b"-NOGROUP\r\n"),
        (beanstalkd.Take(1).receive, b"INTERNAL_ERROR\r\n"),
        (beanstalkd.Take(1).receive, b"NOT_FOUND\r\nDELETED\r\n"),
        (taskflux.Enqueue().receive, b"cx\0"),
        (taskflux.Dequeue().receive, b"cx\0"),
    ],
)
def test_an_answer_that_is_no_success_is_never_counted(receive: Callable[[bytes], object], answer: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        receive(answer)


def test_an_ack_that_was_not_honoured_is_never_counted() -> None:
    load = native.AckAndTake(2)
    load.start()
    load.receive(NATIVE_TAKEN)
    with pytest.raises(UnexpectedAnswer):
        load.receive(encode_frame(ANSWER, 1, encode([[1, [0]], [45, DELIVERIES]])))


def test_distinct_keys_are_distinct_and_fit_int64() -> None:
    requests = native.DistinctKeyRequests(50)
    reader = FrameReader()
    bodies = [body for _, _, body in reader.feed(requests.take(40))]
    keys = [key for body in bodies for key, _ in msgspec.msgpack.decode(body)[1]]
    assert len(set(keys)) == 2_000
    assert keys != sorted(keys)
    assert 0 <= min(keys) <= max(keys) < 2**63


def test_a_watcher_finishes_when_all_that_was_sent_has_come() -> None:
    producer = StampedPuts(1000, native.encode_put, native.put_counter())
    taker = native.AckAndTake(2, wait=True)
    taker.watch(producer)
    producer.tick()
    producer.tick()
    taker.start()
    taker.stop()
    finished = [taker.finished]
    taker.receive(NATIVE_TAKEN)
    finished.append(taker.finished)
    assert finished == [False, True]
    assert len(taker.latencies_ns) == 2
