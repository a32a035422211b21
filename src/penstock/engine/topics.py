"""Topic messages and bindings.

A topic message is an event, not state: whoever applies the entry live hands it to its own subscribers. A binding is
state: it puts a copy of what matches into its queue in the same entry.
"""

from __future__ import annotations

import msgspec

from penstock.engine import errors as e
from penstock.engine import journal as j
from penstock.engine.answers import Answer, Done
from penstock.engine.commands import Bind, Broadcast, Item, Options, QueueSettings, Unbind, encode
from penstock.engine.errors import Refusal
from penstock.engine.managing import add_queue
from penstock.engine.names import is_queue_name
from penstock.engine.putting import judge, place, refuse_put
from penstock.engine.queue import Queue
from penstock.engine.state import State
from penstock.engine.views import BindingView

BINDINGS_MAX = 10_000


def broadcast(st: State, args: Broadcast) -> Answer:
    """Hand a message to live subscribers and copy it into the queues bound to it; answers how many queues got it.

    All or nothing: a queue that cannot take its copy speaks for the message as it would for a put, and whoever sent it
    is told. Else what is acknowledged could be missing where it was bound to go.
    """
    copies: list[tuple[Queue, Item]] = []
    for name in sorted(st.bindings):
        binding = st.bindings[name]
        queue = st.by_name.get(binding.queue)
        if queue is None or binding.paused or not _matches(binding, args):
            continue
        headers = msgspec.Raw(encode({"tag": args.tag.decode("latin-1"), "channel": str(args.channel)}))
        options = Options(headers=headers, lease_ms=binding.timeout_ms, expires_at_us=args.expires_at_us)
        item = Item(0, args.body, options)
        code, figure = judge(st, queue, item, sum(other is queue for other, _ in copies))
        if code > 0:
            return refuse_put(queue, code, figure, len(copies))
        copies.append((queue, item))
    st.row(j.BROADCAST, value=args.channel, payload=st.locate(args.body), headers=st.locate(args.tag))
    st.broadcasts.append(args)
    for queue, item in copies:
        place(st, queue, item)
        st.woken.add(queue.name)
    return Done(len(copies))


def _matches(binding: BindingView, args: Broadcast) -> bool:
    return binding.spec in ("", args.spec) and binding.type in ("", args.type)


def bind(st: State, args: Bind) -> Answer:
    """Set a binding, new or changed; its queue is made if it is missing."""
    if not is_queue_name(args.name) or not args.name:
        return Refusal(e.BAD_COMMAND, "a binding's name has 1 to 255 characters between ! and ~")
    if args.queue not in st.by_name:
        made = add_queue(st, args.queue, QueueSettings())
        if isinstance(made, Refusal):
            return made
    if args.name not in st.bindings and len(st.bindings) >= BINDINGS_MAX:
        return Refusal(e.BAD_COMMAND, f"there are {BINDINGS_MAX} bindings already")
    new = BindingView(args.name, args.spec, args.type, args.queue, args.timeout_ms, args.paused)
    if st.bindings.get(args.name) == new:
        return Done(0)
    st.bindings[args.name] = new
    st.row(j.BOUND, st.by_name[args.queue].uid, payload=st.locate(args.name.encode()))
    return Done(1)


def unbind(st: State, args: Unbind) -> Answer:
    """Forget a binding; its queue stays."""
    if st.bindings.pop(args.name, None) is None:
        return Refusal(e.NO_SUCH_BINDING, f"there is no binding {args.name!r}")
    st.row(j.UNBOUND, payload=st.locate(args.name.encode()))
    return Done(1)
