"""Qnames: any string that fits has a queue name of its own, and comes back from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.names import is_queue_name
from penstock.wire.etzel import Nok, RequestError, qname_of, queue_name


@pytest.mark.parametrize(
    ("qname", "queue"),
    [
        ("", ""),
        ("orders", "orders"),
        ("two words", "two%20words"),
        ("é", "%C3%A9"),
        ("\0\x7f", "%00%7F"),
        ("50%", "50%"),
        ("%zz", "%zz"),
        ("%4", "%4"),
        ("%41", "%2541"),
        ("%aF", "%25aF"),
        ("%%41", "%%2541"),
        ("%4é", "%4%C3%A9"),
        ("q" * 255, "q" * 255),
        (" " * 85, "%20" * 85),
    ],
)
def test_how_names_are_written(qname: str, queue: str) -> None:
    assert queue_name(qname) == queue
    assert qname_of(queue) == qname


@pytest.mark.parametrize("qname", ["q" * 256, " " * 86, "%41" * 64, "\ud800", "é" * 10**6])
def test_what_cannot_name_a_queue(qname: str) -> None:
    with pytest.raises(RequestError) as raised:
        queue_name(qname)
    assert raised.value.nok is Nok.BAD_QNAME


@pytest.mark.parametrize("queue", ["%41", "%c3%a9", "%FF", "a%2", "%%20"])
def test_a_queue_of_another_door_may_have_no_qname(queue: str) -> None:
    qname = qname_of(queue)
    assert qname is None or queue_name(qname) == queue
    assert (qname is None) == (queue in ("%41", "%c3%a9", "%FF"))


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("%%%0aF"), max_size=60))
def test_every_name_comes_back(qname: str) -> None:
    try:
        queue = queue_name(qname)
    except RequestError:
        assert len(qname.encode()) * 3 > 255
        return
    assert is_queue_name(queue)
    assert qname_of(queue) == qname


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126) | st.sampled_from("%%%0aF"), max_size=255))
def test_no_queue_has_a_qname_that_leads_elsewhere(queue: str) -> None:
    qname = qname_of(queue)
    assert qname is None or queue_name(qname) == queue
