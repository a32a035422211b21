"""Finding targets and running them.

What belongs here: what a target is, how the modules of this package become targets, and the loop over the cases.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import ModuleType

import fuzz
from fuzz.mutate import mutate


@dataclass(frozen=True)
class Target:
    """A parser under test."""

    name: str
    corpus: Callable[[], list[bytes]]
    run: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]


@dataclass
class Figures:
    """What happened so far: how many inputs were accepted, and how many ended in each allowed error."""

    cases: int = 0
    accepted: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class Finding(Exception):
    """An input that makes a target fail in a way that it must not."""

    def __init__(self, target: str, case: int, data: bytes, error: Exception) -> None:
        super().__init__(f"{target}, case {case}: {type(error).__name__}: {error}\ninput: {data.hex()}")
        self.target = target
        self.case = case
        self.data = data
        self.error = error


def discover() -> list[Target]:
    """All targets of the modules in this package, by name."""
    targets: list[Target] = []
    for module_info in pkgutil.iter_modules(fuzz.__path__, "fuzz."):
        if not module_info.name.endswith("__main__"):
            targets += targets_of(importlib.import_module(module_info.name))
    return sorted(targets, key=lambda target: target.name)


def targets_of(module: ModuleType) -> list[Target]:
    """The targets of one module: those in its TARGETS, or the module itself if it has the names of one."""
    if hasattr(module, "TARGETS"):
        return list(module.TARGETS)
    if all(hasattr(module, name) for name in ("NAME", "corpus", "run", "ALLOWED")):
        return [Target(module.NAME, module.corpus, module.run, module.ALLOWED)]
    return []


def fuzz_target(target: Target, cases: int, seed: int, progress: Callable[[Figures], None] | None = None) -> Figures:
    """Run the corpus, which must be accepted, then `cases` mutated inputs. Raises Finding at the first failure."""
    random = Random(f"{seed} {target.name}")
    corpus = target.corpus()
    figures = Figures()
    for case, data in enumerate(corpus):
        try:
            target.run(data)
        except Exception as error:
            raise Finding(f"{target.name} (corpus)", case, data, error) from error
    for case in range(cases):
        data = mutate(random, corpus)
        try:
            target.run(data)
        except target.allowed as error:
            figures.errors[type(error).__name__] += 1
        except Exception as error:
            raise Finding(target.name, case, data, error) from error
        else:
            figures.accepted += 1
        figures.cases += 1
        if progress is not None:
            progress(figures)
    return figures
