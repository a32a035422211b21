"""Topic messages and bindings.

A topic message is an event, not state: whoever applies the entry live hands it to its own subscribers. A binding is
state: it puts a copy of what matches into its queue in the same entry.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done
from penstock.engine.commands import Bind, Broadcast, Item, Options, QueueSettings, Unbind, encode
from penstock.engine.errors import Refusal
from penstock.engine.managing import add_queue
from penstock.engine.names import is_queue_name
from penstock.engine.putting import headers_of, judge, place, refuse_put
from penstock.engine.queue import Queue
from penstock.engine.records import Location
from penstock.engine.state import State
from penstock.engine.views import BindingView

BINDINGS_MAX: Final = 10_000
MATCHES_MAX: Final = 1_000
"""Bindings that may match one message: each of them is a put in the entry of the message."""
TAG_BYTES_MAX: Final = 65_536
TOPIC_CHARACTERS_MAX: Final = 4_096
"""Of a message's spec and of its type."""


def broadcast(st: State, args: Broadcast) -> Answer:
    """Hand a message to live subscribers and copy it into the queues bound to it; answers how many queues got it.

    All or nothing: a queue that cannot take its copy speaks for the message as it would for a put, and whoever sent it
    is told. Else what is acknowledged could be missing where it was bound to go.
    """
    refusal = _too_long(args) if st.rules else None
    if refusal is not None:
        return refusal
    copies: list[tuple[Queue, Item]] = []
    waiting: dict[str, int] = {}
    headers = msgspec.Raw(encode({"tag": args.tag.decode("latin-1"), "channel": str(args.channel)}))
    items: dict[int, Item] = {}
    for binding in st.bindings.matching(args.spec, args.type):
        queue = st.by_name.get(binding.queue)
        if queue is None or binding.paused:
            continue
        item = items.get(binding.timeout_ms)
        if item is None:
            options = Options(headers=headers, lease_ms=binding.timeout_ms, expires_at_us=args.expires_at_us)
            item = items[binding.timeout_ms] = Item(0, args.body, options)
        before = waiting.get(queue.name, 0)
        code, figure = judge(st, queue, item, before)
        if code > 0:
            return refuse_put(queue, code, figure, len(copies))
        waiting[queue.name] = before + 1
        copies.append((queue, item))
    tag_at = st.locate(args.tag)
    body_at = st.locate(args.body, tag_at[0] - st.body_offset + tag_at[1])
    st.row(j.BROADCAST, value=args.channel, payload=body_at, headers=tag_at)
    st.broadcasts.append(args)
    _copy(st, copies, body_at)
    return Done(len(copies))


def _copy(st: State, copies: list[tuple[Queue, Item]], body_at: tuple[int, int]) -> None:
    # The headers are made here, so the entry has them nowhere.
    location = Location(body_at, (0, 0))
    shared_headers = headers_of(copies[0][1].options) if len(copies) > 1 else None
    for queue, item in copies:
        place(st, queue, item, location=location, shared_headers=shared_headers)
        st.woken.add(queue.name)


def _too_long(args: Broadcast) -> Refusal | None:
    if len(args.tag) > TAG_BYTES_MAX:
        return Refusal(e.BAD_COMMAND, f"a tag of {len(args.tag)} bytes is longer than {TAG_BYTES_MAX}")
    longest = max(len(args.spec), len(args.type))
    if longest > TOPIC_CHARACTERS_MAX:
        return Refusal(e.BAD_COMMAND, f"a spec or type of {longest} characters is longer than {TOPIC_CHARACTERS_MAX}")
    return None


def bind(st: State, args: Bind) -> Answer:
    """Set a binding, new or changed; its queue is made if it is missing."""
    if not is_queue_name(args.name) or not args.name:
        return Refusal(e.BAD_COMMAND, "a binding's name has 1 to 255 characters between ! and ~")
    new = BindingView(args.name, args.spec, args.type, args.queue, args.timeout_ms, args.paused)
    if st.rules:
        refusal = _one_too_many(st, new)
        if refusal is not None:
            return refusal
    if args.queue not in st.by_name:
        made = add_queue(st, args.queue, QueueSettings())
        if isinstance(made, Refusal):
            return made
    if args.name not in st.bindings and len(st.bindings) >= BINDINGS_MAX:
        return Refusal(e.BAD_COMMAND, f"there are {BINDINGS_MAX} bindings already")
    if st.bindings.get(args.name) == new:
        return Done(0)
    st.bindings[new.name] = new
    st.row(j.BOUND, st.by_name[args.queue].uid, payload=st.locate(args.name.encode()))
    return Done(1)


def _one_too_many(st: State, new: BindingView) -> Refusal | None:
    """The refusal of a binding with which too many could match one message."""
    present = st.bindings.get(new.name)
    if present is not None and (present.spec, present.type) == (new.spec, new.type):
        return None
    if st.bindings.matched_with_max(new.spec, new.type) < MATCHES_MAX:
        return None
    return Refusal(e.BAD_COMMAND, f"one message could match more than {MATCHES_MAX} bindings; name a spec and a type")


def unbind(st: State, args: Unbind) -> Answer:
    """Forget a binding; its queue stays."""
    if st.bindings.pop(args.name, None) is None:
        return Refusal(e.NO_SUCH_BINDING, f"there is no binding {args.name!r}")
    st.row(j.UNBOUND, payload=st.locate(args.name.encode()))
    return Done(1)
