"""Random arguments for any request, made from its type: a new command is covered when it is added."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec
from msgspec import inspect

QUEUES: Final = ("", "a", "b", "c", "d", "dead")
NAMES: Final = (*QUEUES, "w", "spec", "type", "odd name", "x" * 255, "ключ")
"""Few names, so that sessions meet each other at the same objects."""
_NUMBERS: Final = (0, 0, 1, 1, 2, 3, 5, 8, 100, 1000, 60_000, 2**31 - 1, 2**32, 2**53, 2**63 - 1)
_LIST_MAX: Final = 4

Handle = tuple[int, int]


class Values:
    """Makes arguments. ``handles`` are leases that this session was given, used where a request wants some."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.handles: list[Handle] = []

    def arguments(self, kind: type[Any]) -> Any:
        """An instance of a request's type, encodable and in most cases valid."""
        return self._make(inspect.type_info(kind), kind.__name__)

    def _make(self, info: inspect.Type, name: str) -> Any:
        random = self._random
        if isinstance(info, inspect.StructType):
            return self._struct(info)
        if isinstance(info, inspect.UnionType):
            return self._make(random.choice(info.types), name)
        if isinstance(info, inspect.ListType):
            if name == "handles" and self.handles and random.random() < 0.8:
                return random.sample(self.handles, min(len(self.handles), random.randint(1, _LIST_MAX)))
            return [self._make(info.item_type, name) for _ in range(random.randint(0, _LIST_MAX))]
        if isinstance(info, inspect.TupleType):
            return tuple(self._make(each, name) for each in info.item_types)
        return self._scalar(info, name)

    def _struct(self, info: inspect.StructType) -> Any:
        required = [field for field in info.fields if field.required]
        optional = info.fields[len(required) :]
        # Trailing fields are mostly left out, as real clients do; then the rest keep their defaults.
        given = [*required, *optional[: self._random.choice((0, 0, 0, 1, 2, len(optional)))]]
        return info.cls(**{field.name: self._make(field.type, field.name) for field in given})

    def _scalar(self, info: inspect.Type, name: str) -> Any:
        random = self._random
        if isinstance(info, inspect.IntType):
            low, high = info.ge or 0, info.le if info.le is not None else 2**63 - 1
            wanted = random.choice(_NUMBERS) if random.random() < 0.3 else random.randint(0, 20)
            if name == "wait_ms":
                wanted = random.choice((0, 5, 50, 3_600_000))
            return max(low, min(high, wanted if low >= 0 else wanted * random.choice((1, -1))))
        if isinstance(info, inspect.StrType):
            return random.choice(QUEUES if name in ("queue", "name", "target") else NAMES)[: info.max_length]
        if isinstance(info, inspect.BytesType):
            return random.randbytes(random.choice((0, 1, 10, 10, 200, 3000)))
        if isinstance(info, inspect.BoolType):
            return random.random() < 0.5
        if isinstance(info, inspect.RawType):
            return msgspec.Raw(msgspec.msgpack.encode(random.choice((None, {}, {"a": "b"}, {"a": 1}, []))))
        if isinstance(info, inspect.FloatType):
            return random.choice((0.0, 1.5, -1.0, 1e300))
        return None
