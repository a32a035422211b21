"""Counting the steps of a call, so that tests can tell how a cost grows without a clock.

A step is a bytecode instruction of the engine's own code. A loop inside the interpreter has no instructions, so its
length is added: for ``sorted``, ``sum`` and the like, for methods that walk a whole list or dictionary, and for each
list, dictionary or set that a function makes and holds in a variable (a slice, a copy, a comprehension).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from heapq import heapify
from types import FrameType, ModuleType
from typing import Any, Final

import penstock.engine

_ENGINE_PATH: Final = str(penstock.engine.__path__[0])
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "heapify": heapify,
    **{name: getattr(builtins, name) for name in ("sorted", "sum", "min", "max", "any", "all")},
}
_METHODS: Final = frozenset({"copy", "index", "sort", "extend", "update", "count", "reverse"})
_REFERENCES_OF_A_NEW_ONE: Final = 4
"""To a container that only one variable holds: the variable, the view of the frame, ours, and the question itself."""


class Steps:
    """How many steps were counted so far."""

    def __init__(self) -> None:
        self.count = 0
        self._held: dict[FrameType, dict[str, int]] = {}

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Count the instructions of the engine, and what it makes on the way."""
        if not frame.f_code.co_filename.startswith(_ENGINE_PATH):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
        elif event in ("line", "return"):
            self._look_for_new_containers(frame)
            if event == "return":
                self._held.pop(frame, None)
        return self.trace

    def profile(self, frame: FrameType, event: str, called: Any) -> None:
        """Count what a method of a container walks."""
        if event != "c_call" or not frame.f_code.co_filename.startswith(_ENGINE_PATH):
            return
        if called.__name__ in _METHODS and isinstance(called.__self__, list | dict | set):
            self.count += len(called.__self__)

    def measured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which counts the length of what it is given."""

        def call(*args: Any, **named: Any) -> Any:
            if len(args) == 1 and hasattr(args[0], "__len__"):
                self.count += len(args[0])
            return function(*args, **named)

        return call

    def _look_for_new_containers(self, frame: FrameType) -> None:
        held, variables = self._held.setdefault(frame, {}), frame.f_locals
        for name in variables:
            value = variables[name]
            if value.__class__ in (list, dict, set) and held.get(name) != id(value):
                held[name] = id(value)
                if sys.getrefcount(value) <= _REFERENCES_OF_A_NEW_ONE:
                    self.count += len(value)


def count_steps(call: Callable[[], Any]) -> int:
    """How many steps a call takes."""
    steps = Steps()
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("penstock.engine") and isinstance(module, ModuleType)
    ]
    before = [(module, dict(vars(module))) for module in modules]
    for module in modules:
        for name, function in _FUNCTIONS.items():
            if name != "heapify" or name in vars(module):
                setattr(module, name, steps.measured(function))
    sys.setprofile(steps.profile)
    sys.settrace(steps.trace)
    try:
        call()
    finally:
        sys.settrace(None)
        sys.setprofile(None)
        for module, names in before:
            for name in _FUNCTIONS:
                if name in names:
                    setattr(module, name, names[name])
                elif name in vars(module):
                    delattr(module, name)
    return steps.count
