"""Bindings, by name and by what they match, so that a topic message costs only the bindings that match it.

A binding names a spec and a type, and either may be empty, which matches any. So a message is matched by the bindings
of at most four such pairs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, MutableMapping

from penstock.engine.memory import BINDING_BYTES, text_bytes
from penstock.engine.views import BindingView

Pair = tuple[str, str]
"""A spec and a type."""


def binding_bytes(binding: BindingView) -> int:
    """What a binding costs in memory."""
    return BINDING_BYTES + sum(map(text_bytes, (binding.name, binding.spec, binding.type, binding.queue)))


class Bindings(MutableMapping[str, BindingView]):
    """All bindings, by name."""

    __slots__ = ("_by_name", "_names", "size_bytes")

    def __init__(self) -> None:
        self._by_name: dict[str, BindingView] = {}
        self._names: dict[Pair, list[str]] = {}
        """The names of the bindings with a spec and a type, in order."""
        self.size_bytes = 0
        """What all of them cost in memory."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __getitem__(self, name: str) -> BindingView:
        return self._by_name[name]

    def __setitem__(self, name: str, binding: BindingView) -> None:
        if name in self._by_name:
            del self[name]
        self._by_name[name] = binding
        self.size_bytes += binding_bytes(binding)
        insort(self._names.setdefault((binding.spec, binding.type), []), name)

    def __delitem__(self, name: str) -> None:
        binding = self._by_name.pop(name)
        self.size_bytes -= binding_bytes(binding)
        pair = binding.spec, binding.type
        names = self._names[pair]
        del names[bisect_left(names, name)]
        if not names:
            del self._names[pair]

    def matching(self, spec: str, type_: str) -> Iterator[BindingView]:
        """The bindings that match a message, by name."""
        pairs = {("", ""), (spec, ""), ("", type_), (spec, type_)}
        for name in sorted(name for pair in pairs for name in self._names.get(pair, ())):
            yield self._by_name[name]

    def count_matching(self, spec: str, type_: str) -> int:
        """How many bindings match a message."""
        pairs = {("", ""), (spec, ""), ("", type_), (spec, type_)}
        return sum(len(self._names.get(pair, ())) for pair in pairs) if self._names else 0

    def matched_with_max(self, spec: str, type_: str) -> int:
        """How many bindings may match one message that a binding with this spec and type would match, at most.

        Exact where the binding names both. If each new binding is held to a limit by this, then no message is matched
        by more: those that match it matched it, too, when the last of them was set.
        """
        if spec and type_:
            return self.count_matching(spec, type_)
        counts = {pair: len(names) for pair, names in self._names.items()}
        any_ = counts.pop(("", ""), 0)
        by_spec = {pair[0]: count for pair, count in counts.items() if not pair[1] and spec in ("", pair[0])}
        by_type = {pair[1]: count for pair, count in counts.items() if not pair[0] and type_ in ("", pair[1])}
        both = [
            count
            for pair, count in counts.items()
            if pair[0] and pair[1] and spec in ("", pair[0]) and type_ in ("", pair[1])
        ]
        return any_ + max(by_spec.values(), default=0) + max(by_type.values(), default=0) + max(both, default=0)
