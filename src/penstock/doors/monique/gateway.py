"""One client of the gateway: MessagePack maps in the frames of a WebSocket.

    ping         ──▶ pong
    subscribe    ──▶ subscribed        then pushed_from_mq for each message that matches, once
    unsubscribe  ──▶ unsubscribed
    push_to_mq   ──▶ pushed_to_mq      when the message is in the log
    all else     ──▶ {"error": …}      and the connection lives

    GET / without an upgrade ──▶ a page from which a person can do all this

A client that does not read what it subscribed to is disconnected, so that it costs nobody else anything.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Final

from websockets.datastructures import Headers
from websockets.frames import CloseCode

from penstock.doors.listening import Doorkeeper
from penstock.doors.monique.delivery import Subscriptions
from penstock.doors.monique.errors import NoMemoryForPatterns
from penstock.doors.monique.page import PAGE_POLICY, page
from penstock.doors.monique.publishing import Rules
from penstock.doors.subscribing import SubscriptionMemory
from penstock.doors.visitors import Visitors
from penstock.doors.websocket import Refused, WebSocketConnection, cookie
from penstock.engine.answers import Answer
from penstock.engine.entries import Command
from penstock.engine.errors import Refusal
from penstock.node.node import Node
from penstock.settings.schema import MoniqueSettings
from penstock.wire.monique import gateway as g
from penstock.wire.monique.errors import MoniqueError, TooManyPatterns, UnknownMessage
from penstock.wire.monique.tags import TAG_BYTES_MAX, Dialect

log = logging.getLogger(__name__)

PATTERNS_PER_CLIENT_MAX: Final = 10_000
TOO_SLOW: Final = CloseCode.TRY_AGAIN_LATER
"""How a client is told that more waited for it than is allowed."""
_DIALECTS: Final = (Dialect.CURRENT, Dialect.LEGACY)


class GatewayConnection(WebSocketConnection):
    """A client that speaks either dialect; it is answered in its own."""

    def __init__(
        self,
        node: Node,
        keeper: Doorkeeper,
        settings: MoniqueSettings,
        *,
        rules: Rules,
        subscriptions: Subscriptions,
        visitors: Visitors,
        message_bytes_max: int,
    ) -> None:
        super().__init__(node, keeper, "monique", message_bytes_max=message_bytes_max, visitors=visitors)
        self._settings = settings
        self._rules = rules
        self._subscriptions = subscriptions
        self._patterns: set[g.Pattern] = set()
        self._memory = SubscriptionMemory(keeper)
        self.dialect = Dialect.LEGACY if settings.dialect == "legacy" else Dialect.CURRENT

    # The WebSocket's side.

    def admit(self, path: str, headers: Headers) -> None:
        """Accept every path; a strict gateway requires the cookie that MoniQue's own clients send.

        A browser that opens the address as a page gets a page that talks to this gateway.
        """
        if path == "/" and "Upgrade" not in headers:
            raise Refused(HTTPStatus.OK, page(), "text/html; charset=utf-8", PAGE_POLICY)
        if self._settings.strict_cookie and cookie(headers, "id") is None:
            refusal = g.encode_reply(g.ErrorReply(g.NO_COOKIE))
            raise Refused(HTTPStatus.BAD_REQUEST, refusal, "application/msgpack")

    def message(self, payload: bytes, text: bool) -> None:
        """Serve one request, in whichever kind of frame it came."""
        try:
            request = g.decode_request(payload)
            if isinstance(request, g.PushToMq):
                self._on_push(request)
            elif isinstance(request, g.Ping):
                self._say(g.Pong(request.number))
            elif isinstance(request, g.Subscribe):
                self._on_subscribe(request)
            else:
                self._on_unsubscribe(request)
        except MoniqueError as error:
            self._say(g.ErrorReply(str(error)))

    def gone(self) -> None:
        """The client left, and wants nothing more."""
        self._subscriptions.remove(self, self._patterns)
        self._patterns.clear()
        self._memory.clear()

    # Requests.

    def _say(self, reply: g.Reply) -> None:
        self.send(g.encode_reply(reply), text=False)

    def _on_push(self, request: g.PushToMq) -> None:
        command = self._rules.com(request.tag, request.message, self.owner)
        legacy = request.dialect is Dialect.LEGACY
        if legacy and self.dialect is Dialect.CURRENT and self._settings.dialect == "auto":
            self.dialect = Dialect.LEGACY
            self._subscriptions.changed()
        self.submit(command, int(legacy))

    def _on_subscribe(self, request: g.Subscribe) -> None:
        if any(len(field) > TAG_BYTES_MAX for pattern in request.patterns for field in (pattern.spec, pattern.type)):
            raise UnknownMessage("a pattern is longer than any tag")
        # The cost is that of the request, however many patterns the client has already.
        fresh = set(request.patterns) - self._patterns
        if len(self._patterns) + len(fresh) > PATTERNS_PER_CLIENT_MAX:
            raise TooManyPatterns(len(self._patterns) + len(fresh), PATTERNS_PER_CLIENT_MAX)
        if fresh:
            if not self._memory.add(_text_bytes(fresh), len(fresh)):
                raise NoMemoryForPatterns
            self._patterns |= fresh
            self._subscriptions.add(self, fresh)
        self._say(g.Subscribed(request.patterns))

    def _on_unsubscribe(self, request: g.Unsubscribe) -> None:
        known = self._patterns.intersection(request.patterns)
        if known:
            self._memory.remove(_text_bytes(known), len(known))
            self._patterns -= known
            self._subscriptions.remove(self, known)
        self._say(g.Unsubscribed(request.patterns))

    # The node's side.

    def reply(self, ref: int, command: Command, answer: Answer) -> None:
        """Acknowledge a message that is in the log now, in the form in which its tag came."""
        tag = command.args.tag
        if isinstance(answer, Refusal):
            self._say(g.ErrorReply(f"{tag.decode()} was not published: {answer.detail}"))
        else:
            self._say(g.PushedToMq(tag, _DIALECTS[ref]))

    def deliver(self, frames: bytes, *, at_once: bool) -> None:
        """Send messages that the client subscribed to; or end it, if it did not read the earlier ones."""
        if not self.is_open:
            return
        if self.unsent_bytes > self._settings.gateway_unsent_bytes:
            log.warning("%s %s: disconnected: %d bytes wait for it", self.door_name, self.peer, self.unsent_bytes)
            self.gone()
            self.end(TOO_SLOW, "too many messages wait to be read")
        elif at_once and not self._out:
            self.transmit(frames)
        else:
            self.write(frames)
            if at_once:
                self.flush()


def _text_bytes(patterns: set[g.Pattern]) -> int:
    return sum(len(pattern.spec) + len(pattern.type) for pattern in patterns)
