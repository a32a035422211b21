"""docs/protocols/etzel.md says what is so: its frames are requests and replies, and it has every code."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.wire.etzel import Nok, encode_reply, parse_reply, parse_request
from penstock.wire.etzel.requests import Acknowledge, Fetch, Publish, Sleep, Sub
from tests.doors.etzel.support import Client

DOC = (Path(__file__).parents[3] / "docs" / "protocols" / "etzel.md").read_text()
TABLE = DOC.split("## Requests and replies")[1].split("**PUB**")[0]
FRAMES = re.findall(r"`(\{[^`]*\})`", TABLE)


def test_every_request_and_every_reply_is_there() -> None:
    requests = [frame for frame in FRAMES if re.search(r'"cmd":"[A-Z]', frame)]
    replies = [frame for frame in FRAMES if frame not in requests]
    assert {type(parse_request(frame)) for frame in requests} == {Acknowledge, Fetch, Publish, Sleep, Sub}
    assert [encode_reply(parse_reply(frame)).decode() for frame in replies] == replies
    commands = {re.findall(r'"cmd":"(\w+)"', frame)[0] for frame in FRAMES}
    assert commands == set("SUB PUB FET ISLP ACK DEL oksub ok msg nomsg nok okslp okack awk".split())


def test_every_code_is_there_and_no_other() -> None:
    table = DOC.split("| code | meaning |")[1].split("\n\n")[0]
    named = {code for row in table.splitlines() if row for code in re.findall(r"`([A-Z_]+)`", row.split("|")[1])}
    assert named == set(Nok)


def test_the_dialogue_of_the_table_is_held(client: Client) -> None:
    """Each request of the table, one after the other, gets the reply beside it, but for the uid; and one wakes."""
    uid = re.compile(r'"uid":"[^"]+"')
    rows = [re.findall(r"`(\{[^`]*\})`", row) for row in TABLE.splitlines()]
    for request, reply in (row for row in rows if len(row) == 2):
        client.send_frame(request.encode())
        heard = client.receive().decode()
        assert uid.sub("", heard) == uid.sub("", reply)
        if '"ISLP"' in request:
            assert client.receive().decode() == FRAMES[-1], "one message of the two is still there"
