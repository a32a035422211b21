"""Putting records into queues: the policies, deduplication, delays and expiry.

A repeat by deduplication key is recognised before the policies are asked; then size, key range, payload, headers and
the memory of keys are checked, in this order, and the first that is violated is reported.
"""

from __future__ import annotations

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, PutAnswer, PutManyAnswer
from penstock.engine.chunks import CHUNK_BITS, CHUNK_SLOTS
from penstock.engine.commands import (
    HEADERS_BYTES_MAX,
    NO_RAW,
    RECORDS_PER_COMMAND_MAX,
    RULES_OF_BYTES,
    Item,
    Options,
    Put,
    PutMany,
    QueueSettings,
)
from penstock.engine.errors import Refusal
from penstock.engine.journal import ROW
from penstock.engine.locating import LARGE_BYTES, NEAR_BYTES, find_part
from penstock.engine.managing import add_queue, no_such_queue
from penstock.engine.queue import Queue
from penstock.engine.records import DELAYED, READY, Extras, Location, Record
from penstock.engine.state import State
from penstock.engine.timers import DELAY_END, EXPIRY


def put(st: State, args: Put) -> Answer:
    """Put records into one queue, each judged by itself."""
    queue = st.by_name.get(args.queue)
    if queue is None:
        if not args.create:
            return no_such_queue(args.queue)
        made = add_queue(st, args.queue, QueueSettings())
        if isinstance(made, Refusal):
            return made
        queue = made
    settings = queue.settings
    if settings.size_max is None and settings.payload_bytes_max is None and settings.key_range is None:
        for item in args.items:
            if item.options is not None or len(item.payload) > st.payload_bytes_max:
                break
        else:
            if not settings.expires_ms:
                return _put_plain(st, queue, args.items)
    first, count = queue.next_id, 0
    exceptions: list[tuple[int, int, int]] = []
    start = 0
    for position, item in enumerate(args.items):
        code, figure = judge(st, queue, item)
        if code < 0:
            start = place(st, queue, item, start)
            count += 1
        else:
            exceptions.append((position, code, figure))
            if code == 0:
                duplicate_row(st, queue, item, figure)
    if count:
        st.woken.add(queue.name)
    return PutAnswer(first, count, exceptions, queue.uid)


def _put_plain(st: State, queue: Queue, items: list[Item]) -> PutAnswer:
    """Put records without options into a queue without limits: the path that has to be fast."""
    first = record_id = queue.next_id
    place_drawn = queue.next_place
    stamp_us, index, n, door, owner, uid = st.stamp_us, st.index, st.n, st.door, st.owner, queue.uid
    item_number = st.item
    body, find, body_offset = st.body, st.body.find, st.body_offset
    append_ready, append_row, pack = queue.order.append, st.rows.append, ROW.pack
    table = queue.table
    slots: list[Record | None] = []
    payload_bytes = start = 0
    chunk = None
    for item in items:
        slot = record_id & (CHUNK_SLOTS - 1)
        if chunk is None or not slot:
            chunk = table.writable(record_id >> CHUNK_BITS)
            slots = chunk.slots
        payload = item.payload
        length = len(payload)
        key = item.key
        # Ids and places mostly go together: then one integer serves as both.
        record = Record(record_id, key, payload, record_id if place_drawn == record_id else place_drawn, stamp_us)
        slots[slot] = record
        chunk.live += 1
        append_ready(record)
        found = find(payload, start, start + length + NEAR_BYTES) if length < LARGE_BYTES else -1
        if found < 0:
            found = find_part(body, payload, start)
        start = found + length
        append_row(
            pack(
                *(index, n, item_number, j.PUT, door, 0, 0, stamp_us, owner, uid, record_id, key, 0, 0, 0),
                *(index, body_offset + found, length, 0, 0),
            )
        )
        item_number += 1
        payload_bytes += length
        record_id += 1
        place_drawn += 1
    count = len(items)
    st.item = item_number
    queue.next_id, queue.next_place = record_id, place_drawn
    queue.counts[READY] += count
    queue.payload_bytes += payload_bytes
    queue.stale.add(queue)
    queue.totals.put += count
    st.woken.add(queue.name)
    return PutAnswer(first, count, [], uid)


def judge(st: State, queue: Queue, item: Item, waiting: int = 0, waiting_keys: int = 0) -> tuple[int, int]:
    """Whether an item may be put: (-1, 0), or the code and figure that say why not; code 0 is a duplicate.

    ``waiting`` counts records that an atomic batch would put into this queue before this one, ``waiting_keys`` those
    of them that have a deduplication key.
    """
    settings = queue.settings
    options = item.options
    if options is not None and options.dedup_key is not None:
        first_id = queue.dedup.ids.get(options.dedup_key)
        if first_id is not None:
            return 0, first_id
    if settings.size_max is not None and queue.occupied() + waiting >= settings.size_max:
        return e.QUEUE_FULL, settings.size_max
    if settings.key_range is not None and not settings.key_range[0] <= item.key <= settings.key_range[1]:
        return e.KEY_OUT_OF_RANGE, 0
    payload_bytes = len(item.payload)
    if settings.payload_bytes_max is not None and payload_bytes > settings.payload_bytes_max:
        return e.PAYLOAD_TOO_LARGE, settings.payload_bytes_max
    if payload_bytes > st.payload_bytes_max:
        return e.PAYLOAD_TOO_LARGE, st.payload_bytes_max
    if (
        options is not None
        and options.headers is not NO_RAW
        and st.rules >= RULES_OF_BYTES
        and memoryview(options.headers).nbytes > HEADERS_BYTES_MAX
    ):
        return e.HEADERS_TOO_LARGE, HEADERS_BYTES_MAX
    if (
        options is not None
        and options.dedup_key is not None
        and settings.dedup_window_ms
        and len(queue.dedup.ids) + waiting_keys >= settings.dedup_keys_max
    ):
        return e.DEDUP_FULL, settings.dedup_keys_max
    return -1, 0


def locate(st: State, payload: bytes, headers: bytes, start: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Where an item's parts lie in the command's entry, and where in the body the search for the next may start."""
    payload_at = st.locate(payload, start)
    start = payload_at[0] - st.body_offset + payload_at[1]
    if not headers:
        return payload_at, (0, 0), start
    headers_at = st.locate(headers, start)
    if headers_at[1]:
        start = headers_at[0] - st.body_offset + headers_at[1]
    return payload_at, headers_at, start


def place(
    st: State,
    queue: Queue,
    item: Item,
    start: int = 0,
    index: int | None = None,
    location: Location | None = None,
    shared_headers: bytes | None = None,
) -> int:
    """Put an item that was judged fit; returns where in the command's body the search for the next may start.

    An item that came with an earlier entry brings that one's index and its location there. One that is put into several
    places by this command brings its headers, so that all copies share them as they share the payload.
    """
    record_id = queue.next_id
    queue.next_id = record_id + 1
    extras = _extras(st, queue, item.options)
    if extras is not None and shared_headers is not None:
        extras.headers, extras.shared = shared_headers, st.position
    state = DELAYED if extras is not None and extras.available_at_us > st.stamp_us else READY
    drawn = queue.draw_place()
    drawn = record_id if drawn == record_id else drawn  # one integer serves as both, as in _put_plain
    record = Record(record_id, item.key, item.payload, drawn, st.stamp_us, state, None, None, extras)
    queue.admit(record)
    queue.totals.put += 1
    if location is None:
        payload_at, headers_at, start = locate(st, item.payload, b"" if extras is None else extras.headers, start)
    else:
        payload_at, headers_at = location.payload, location.headers
    if extras is not None:
        _arm(st, queue, record, extras)
    available_us = extras.available_at_us if extras is not None and state == DELAYED else 0
    st.row(j.PUT, queue.uid, record_id, item.key, 0, 0, available_us, 0, 0, index, payload_at, headers_at)
    return start


def duplicate_row(st: State, queue: Queue, item: Item, first_id: int) -> None:
    """Write down that a put was recognised as a repeat."""
    st.row(j.DUPLICATE, queue.uid, 0, item.key, other_queue=queue.uid, other_record=first_id)


def _arm(st: State, queue: Queue, record: Record, extras: Extras) -> None:
    if record.state == DELAYED:
        st.timers.add(extras.available_at_us, (DELAY_END, queue.uid, record.id))
    if extras.expires_at_us:
        st.timers.add(extras.expires_at_us, (EXPIRY, queue.uid, record.id))
    window_ms = queue.settings.dedup_window_ms
    if extras.dedup_key is not None and window_ms:
        queue.dedup.remember(extras.dedup_key, record.id, st.stamp_us + window_ms * 1000, queue.uid, st.timers)


def _extras(st: State, queue: Queue, options: Options | None) -> Extras | None:
    """What a record keeps of its options; None for a plain one."""
    default_ms = queue.settings.expires_ms
    if options is None:
        return Extras(expires_at_us=st.stamp_us + default_ms * 1000) if default_ms else None
    now_us, available_us, expires_us, expires_ms = st.stamp_us, 0, 0, options.expires_ms
    if options.delay_ms:
        available_us = now_us + options.delay_ms * 1000
    if options.available_at_us:
        available_us = max(available_us, st.from_wall(options.available_at_us))
    if options.expires_at_us:
        expires_us = st.from_wall(options.expires_at_us)
        if expires_ms:
            expires_us = min(expires_us, now_us + expires_ms * 1000)
    elif expires_ms or default_ms:
        expires_us = now_us + (expires_ms or default_ms) * 1000
    return Extras(
        available_us if available_us > now_us else 0,
        expires_us,
        options.lease_ms,
        headers_of(options),
        options.dedup_key,
        options.delay_to_tail,
    )


def headers_of(options: Options | None) -> bytes:
    """An item's headers as they came; empty when there are none."""
    if options is None or options.headers is NO_RAW:
        return b""
    headers = bytes(options.headers)
    return b"" if headers == b"\xc0" else headers


def put_many(st: State, args: PutMany) -> Answer:
    """Put records into several queues, all or none; the refusal names the first offender."""
    total = sum(len(items) for _, items in args.puts)
    if total > RECORDS_PER_COMMAND_MAX:
        return Refusal(e.BAD_COMMAND, f"{total} records are more than {RECORDS_PER_COMMAND_MAX}")
    refusal = empty_group(st, args.puts)
    if refusal is not None:
        return refusal
    verdicts: list[list[tuple[int, int]]] = []
    waiting: dict[str, int] = {}
    fresh_keys: dict[str, set[str]] = {}
    position = 0
    for name, items in args.puts:
        queue = st.by_name.get(name)
        if queue is None:
            return Refusal(e.NO_SUCH_QUEUE, f"there is no queue {name!r}", (position,))
        verdicts.append([])
        for item in items:
            key = item.options.dedup_key if item.options is not None else None
            fresh = fresh_keys.setdefault(name, set())
            if key is not None and key in fresh:
                verdict = (0, 0)  # repeats an earlier record of this very batch
            else:
                verdict = judge(st, queue, item, waiting.get(name, 0), len(fresh))
            if verdict[0] > 0:
                return refuse_put(queue, verdict[0], verdict[1], position)
            if verdict[0] < 0:
                waiting[name] = waiting.get(name, 0) + 1
                if key is not None and queue.settings.dedup_window_ms:
                    fresh.add(key)
            verdicts[-1].append(verdict)
            position += 1
    return _put_all(st, args, verdicts)


def empty_group(st: State, puts: list[tuple[str, list[Item]]]) -> Refusal | None:
    """The refusal of puts of which a group has no records, if one has none: it would cost work and bring nothing."""
    if st.rules:
        for number, (name, items) in enumerate(puts):
            if not items:
                return Refusal(e.BAD_COMMAND, f"group {number}, for queue {name!r}, has no records; leave it out")
    return None


def _put_all(st: State, args: PutMany, verdicts: list[list[tuple[int, int]]]) -> PutManyAnswer:
    puts = []
    start = 0
    for (name, items), judged in zip(args.puts, verdicts, strict=True):
        queue = st.by_name[name]
        first, count = queue.next_id, 0
        exceptions: list[tuple[int, int, int]] = []
        for position, (item, (code, first_id)) in enumerate(zip(items, judged, strict=True)):
            if code < 0:
                start = place(st, queue, item, start)
                count += 1
            else:
                assert item.options is not None
                assert item.options.dedup_key is not None
                first_id = first_id or queue.dedup.ids[item.options.dedup_key]
                exceptions.append((position, 0, first_id))
                duplicate_row(st, queue, item, first_id)
        if count:
            st.woken.add(name)
        puts.append(PutAnswer(first, count, exceptions, queue.uid))
    return PutManyAnswer(puts)


def refuse_put(queue: Queue, code: int, figure: int, position: int) -> Refusal:
    """The refusal of an atomic batch, with the position of the record that caused it last in its figures."""
    if code == e.KEY_OUT_OF_RANGE:
        assert queue.settings.key_range is not None
        low, high = queue.settings.key_range
        return Refusal(code, f"a key is outside {low}..{high}", (low, high, position))
    texts = {
        e.QUEUE_FULL: f"queue {queue.name!r} holds its {figure} records",
        e.PAYLOAD_TOO_LARGE: f"a payload is longer than {figure} bytes",
        e.HEADERS_TOO_LARGE: f"the headers of a message are longer than {figure} bytes",
        e.DEDUP_FULL: f"queue {queue.name!r} remembers {figure} deduplication keys, the maximum of its setting "
        "dedup_keys_max; raise that, or shorten dedup_window_ms",
    }
    return Refusal(code, texts[code], (figure, position))
