"""The blocking client has the names of the asynchronous one, with the same parameters and the same sense."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import aio, messages, queue, subscription, sync

PAIRS = [
    (aio.Client, sync.Client),
    (queue.Queue, sync.Queue),
    (messages.Message, sync.Message),
    (subscription.Subscription, sync.Subscription),
]
# Its own way of making things, and what the link reports to a subscription.
NOT_FOR_USERS = {"of", "pushed", "lost", "failed", "take_next", "number"}


def public(kind: type) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_") and name not in NOT_FOR_USERS}


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_the_names_are_the_same(asynchronous: type, blocking: type) -> None:
    assert public(asynchronous).keys() == public(blocking).keys()
    assert len(public(blocking)) >= 1


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default, each.annotation) for each in found]


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        pytest.param(function, getattr(blocking, name), id=f"{kind.__name__}.{name}")
        for kind, blocking in PAIRS
        for name, function in public(kind).items()
        if inspect.isfunction(function)
    ]
    + [pytest.param(aio.connect, sync.connect_sync, id="connect")],
)
def test_the_parameters_are_the_same(asynchronous: Callable[..., Any], blocking: Callable[..., Any]) -> None:
    assert parameters(asynchronous) == parameters(blocking)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_what_must_be_awaited_there_is_called_here(asynchronous: type, blocking: type) -> None:
    """And both tell the same: the types of what is returned differ only in the style of client."""
    for name, function in public(asynchronous).items():
        if inspect.isfunction(function):
            there = inspect.signature(function).return_annotation
            here = inspect.signature(getattr(blocking, name)).return_annotation
            assert here == there.replace("AsyncIterator", "Iterator"), name


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_what_can_be_entered_or_iterated_there_can_be_here(asynchronous: type, blocking: type) -> None:
    for there, here in (("__aenter__", "__enter__"), ("__aiter__", "__iter__"), ("__aexit__", "__exit__")):
        assert hasattr(asynchronous, there) == hasattr(blocking, here)


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_every_public_name_is_explained(asynchronous: type, blocking: type) -> None:
    for kind in (asynchronous, blocking):
        for name, value in public(kind).items():
            if inspect.isfunction(value) or isinstance(value, property):
                assert value.__doc__, f"{kind.__module__}.{kind.__name__}.{name}"
