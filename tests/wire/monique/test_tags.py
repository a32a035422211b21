"""Tags, topics and ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.monique.errors import FieldHasColon, TagError, TagMalformed, TagNotText, TagTooLong
from penstock.wire.monique.tags import (
    TAG_BYTES_MAX,
    TYPES,
    Dialect,
    Tag,
    legacy_id,
    pack_tag_frame,
    parse_tag,
    topic,
    unpack_tag_frame,
)
from tests.wire.monique.support import dialects, tags, texts, vectors


@given(st.builds(Tag, st.sampled_from(sorted(TYPES)), texts, texts, texts, texts))
def test_a_tag_comes_back_as_it_was(tag: Tag) -> None:
    assert parse_tag(tag.encode()) == tag


def test_everything_but_the_type_may_be_empty() -> None:
    assert parse_tag(b"data::::") == Tag("data", "", "", "", "")


@pytest.mark.parametrize(
    ("tag", "error"),
    [
        (b"", TagMalformed),
        (b"config:a:b:c", TagMalformed),
        (b"config:a:b:c:d:e", TagMalformed),
        (b"Config:a:b:c:d", TagMalformed),
        (b"::::", TagMalformed),
        (b"config:\xff:b:c:d", TagNotText),
        (b"data::::" + b"x" * TAG_BYTES_MAX, TagTooLong),
    ],
)
def test_a_tag_that_cannot_be_delivered_is_refused(tag: bytes, error: type[TagError]) -> None:
    with pytest.raises(error) as raised:
        parse_tag(tag)
    assert raised.value.tag == tag
    assert raised.value.number == 201


def test_no_tag_is_made_that_could_not_be_parsed() -> None:
    with pytest.raises(FieldHasColon) as raised:
        Tag("data", "a:b", "", "", "").encode()
    assert (raised.value.field, raised.value.value) == ("spec", "a:b")
    with pytest.raises(TagMalformed):
        Tag("nothing", "", "", "", "").encode()
    with pytest.raises(TagNotText):
        Tag("data", "\ud800", "", "", "").encode()


@given(tags, dialects)
def test_a_frame_tells_its_dialect(tag: bytes, dialect: Dialect) -> None:
    assert unpack_tag_frame(pack_tag_frame(tag, dialect)) == (tag, dialect)


@pytest.mark.parametrize("frame", [b"\xc4", b"\xc4\x05data", b"\xc4\x01ab", b"\xc6\xff\xff\xff\xffx"])
def test_a_packed_frame_of_the_wrong_length_is_refused(frame: bytes) -> None:
    with pytest.raises(TagNotText):
        unpack_tag_frame(frame)


def test_a_topic_begins_the_tags_of_its_spec_and_no_longer_spec() -> None:
    assert b"config:example_c:1::me".startswith(topic("config", "example_c"))
    assert not b"config:example_clock:1::me".startswith(topic("config", "example_c"))


def test_the_legacy_ids_of_the_originals() -> None:
    examples = vectors()["legacy/id"].fields["examples"]
    assert len(examples) == 2
    for creator, created_at_ms, spec, expected in examples:
        assert legacy_id(creator, created_at_ms, spec) == expected
