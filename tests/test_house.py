"""The house in order: which package may import which, and what the pure packages may touch.

`violations` judges one file's text, so the rules themselves are tested with small bad sources before they are put to
the whole tree. A rule that is in the way is changed here, in the open, and not worked around.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "penstock"

# Who may import whom. "" is penstock/__init__.py. A package that is not here has no place yet: give it one.
PURE = {"engine", "consensus", "wire"}
MAY_IMPORT: dict[str, set[str]] = {
    "": {"client", "testing"},
    "engine": set(),
    "consensus": set(),
    "wire": {"engine"},
    "settings": set(),
    "storage": {"", "engine", "wire"},
    "node": {"", "engine", "consensus", "wire", "settings", "storage"},
    "doors": {"", "engine", "wire", "settings", "storage", "node"},
    "client": {"", "engine", "wire"},
    "spark": {"", "engine", "wire", "client", "storage"},
    "testing": {"", "engine", "consensus", "wire", "settings", "storage", "node", "doors", "client"},
    "cli": {"", "engine", "consensus", "wire", "settings", "storage", "node", "doors", "client", "spark", "testing"},
    "__main__": {"cli"},
}

# What a pure package may import besides ours. None of these reads a clock, a file, a socket or a source of randomness.
PURE_MODULES = set(
    """
    __future__ abc array base64 binascii bisect collections contextlib copy dataclasses datetime decimal enum fractions
    functools hashlib heapq hmac ipaddress itertools json keyword math numbers operator re string struct sys textwrap
    types typing unicodedata weakref zlib
    crc32c msgspec typing_extensions
    """.split()
)
IMPURE_BUILTINS = {
    "open": "reads or writes files",
    "input": "reads the terminal",
    "print": "writes to the terminal",
    "breakpoint": "stops the program",
    "exec": "runs text",
    "eval": "runs text",
    "__import__": "imports past this test",
    "hash": "differs from process to process for text",
    "id": "differs from process to process",
}
IMPURE_ATTRIBUTES = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("sys", "stdin"),
    ("sys", "stdout"),
    ("sys", "stderr"),
    ("sys", "argv"),
    ("sys", "exit"),
}

LINES_MAX = 600
# Where a package is downloaded from is the business of whoever installs it.
REGISTRY_WORDS = re.compile(r"\bpypi\b|pythonhosted|index-url|find-links|trusted-host", re.IGNORECASE)


def violations(path: str, text: str) -> list[str]:
    """What is wrong with one file; `path` is relative to src/penstock."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [f"{path}:{error.lineno}: is not Python: {error.msg}"]
    package = _package(path)
    found = [*_imports_against_the_direction(path, package, tree), *_shape(path, text, tree)]
    if package in PURE:
        found += _impurities(path, tree)
    elif package != "cli":
        found += [f"{line}: print belongs to cli alone" for line, name in _calls(tree) if name == "print"]
    if PurePosixPath(path).name == "errors.py":
        found += _errors_without_a_place(tree)
    return [f"{path}:{each}" for each in found]


def _package(path: str) -> str:
    """The package under penstock that a file belongs to; a module beside them is its own."""
    first = PurePosixPath(path).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def _imports_against_the_direction(path: str, package: str, tree: ast.AST) -> Iterator[str]:
    if package not in MAY_IMPORT:
        yield f"1: the package {package} has no row in MAY_IMPORT"
        return
    for line, module in _imported_modules(path, tree):
        parts = module.split(".")
        if parts[0] != "penstock":
            continue
        target = parts[1] if len(parts) > 1 else ""
        if target not in MAY_IMPORT:
            # `from penstock import __version__`: a name in penstock/__init__.py.
            target = ""
        if target not in MAY_IMPORT[package] | {package}:
            yield f"{line}: {package or 'penstock'} must not import {target or 'penstock'}"


def _imported_modules(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that is imported anywhere in a file, by its full name, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folder = ("penstock", *PurePosixPath(path).parts[:-1])
                base = ".".join([*folder[: len(folder) - node.level + 1], *filter(None, [node.module])])
            if base == "penstock":
                yield from ((node.lineno, f"penstock.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base
        elif isinstance(node, ast.Call) and _called_name(node) == "import_module":
            names = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield from ((node.lineno, name) for name in names if isinstance(name, str))


def _impurities(path: str, tree: ast.AST) -> Iterator[str]:
    for line, module in _imported_modules(path, tree):
        top = module.split(".")[0]
        if top not in PURE_MODULES | {"penstock"}:
            yield f"{line}: imports {module}, which is not among the modules known to be pure"
    for line, name in _calls(tree):
        if name in IMPURE_BUILTINS:
            yield f"{line}: calls {name}, which {IMPURE_BUILTINS[name]}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if (owner, node.attr) in IMPURE_ATTRIBUTES:
                yield f"{node.lineno}: uses {owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (node.module, alias.name) in IMPURE_ATTRIBUTES:
                    yield f"{node.lineno}: imports {node.module}.{alias.name}"


def _calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every call of a bare name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _shape(path: str, text: str, tree: ast.Module) -> Iterator[str]:
    lines = text.splitlines()
    if len(lines) >= LINES_MAX:
        yield f"{len(lines)}: has {len(lines)} lines; cut it before it reaches {LINES_MAX}"
    if not ast.get_docstring(tree):
        yield "1: has no docstring that says what belongs here"
    for number, line in enumerate(lines, 1):
        if REGISTRY_WORDS.search(line):
            yield f"{number}: speaks of a package registry"


def _errors_without_a_place(tree: ast.Module) -> Iterator[str]:
    docstring = ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not re.search(rf"\b{node.name}\b", docstring):
            yield f"{node.lineno}: {node.name} is missing in the tree that opens the file"


GOOD = '"""Says what belongs here."""\n'


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("engine/a.py", "import penstock.wire", "engine must not import wire"),
        ("engine/a.py", "from penstock.consensus import log", "engine must not import consensus"),
        ("engine/a.py", "from penstock import wire", "engine must not import wire"),
        ("engine/a.py", "from penstock import __version__", "engine must not import penstock"),
        ("engine/a.py", "from ..wire import x", "engine must not import wire"),
        ("engine/deep/a.py", "from ...wire.frame import x", "engine must not import wire"),
        ("engine/a.py", "from .. import wire", "engine must not import wire"),
        ("engine/a.py", "def f():\n    import penstock.node", "engine must not import node"),
        ("consensus/a.py", "import penstock.engine.queue", "consensus must not import engine"),
        ("wire/a.py", "import penstock.storage", "wire must not import storage"),
        ("storage/a.py", "import penstock.node", "storage must not import node"),
        ("storage/a.py", "import importlib\nimportlib.import_module('penstock.node')", "storage must not import node"),
        ("node/a.py", "import penstock.doors", "node must not import doors"),
        ("doors/a.py", "from penstock.cli.main import main", "doors must not import cli"),
        ("client/a.py", "import penstock.node", "client must not import node"),
        ("settings/a.py", "import penstock.node", "settings must not import node"),
        ("__init__.py", "import penstock.node", "penstock must not import node"),
        ("attic/a.py", "", "no row in MAY_IMPORT"),
        ("engine/a.py", "import os", "imports os"),
        ("engine/a.py", "import os.path", "imports os.path"),
        ("engine/a.py", "from time import monotonic", "imports time"),
        ("engine/a.py", "from io import BytesIO", "imports io"),
        ("consensus/a.py", "import random", "imports random"),
        ("consensus/a.py", "def f():\n    from secrets import token_bytes", "imports secrets"),
        ("consensus/a.py", "import asyncio, logging", "imports logging"),
        ("wire/a.py", "import socket", "imports socket"),
        ("wire/a.py", "import uuid", "imports uuid"),
        ("wire/a.py", "import threading", "imports threading"),
        ("wire/a.py", "from somewhere.unknown import x", "imports somewhere.unknown"),
        ("wire/a.py", "open('x')", "calls open"),
        ("engine/a.py", "x = hash('a')", "calls hash"),
        ("engine/a.py", "x = __import__('time')", "calls __import__"),
        ("engine/a.py", "import datetime\nx = datetime.datetime.now()", "uses datetime.now"),
        ("engine/a.py", "from datetime import datetime as datetime\nx = datetime.utcnow()", "uses datetime.utcnow"),
        ("engine/a.py", "import datetime\nx = datetime.date.today()", "uses date.today"),
        ("engine/a.py", "import sys\nsys.stderr.write('x')", "uses sys.stderr"),
        ("engine/a.py", "from sys import stdout", "imports sys.stdout"),
        ("engine/a.py", "print('x')", "calls print"),
        ("node/a.py", "print('x')", "print belongs to cli"),
        ("__init__.py", "print('x')", "print belongs to cli"),
        ("node/a.py", "\n" * 600, "cut it before"),
        ("node/a.py", "INDEX = 'https://pypi.example'", "package registry"),
        ("node/errors.py", "class LostError(Exception): ...", "LostError is missing in the tree"),
    ],
)
def test_the_rules_bite(path: str, source: str, complaint: str) -> None:
    found = violations(path, GOOD + source)
    assert any(complaint in each for each in found), found
    assert all(each.startswith(f"{path}:") for each in found)


def test_what_cannot_be_read_is_found() -> None:
    assert violations("node/a.py", "x = (") == ["node/a.py:1: is not Python: '(' was never closed"]


def test_a_module_without_docstring_is_found() -> None:
    assert violations("node/a.py", "x = 1") == ["node/a.py:1: has no docstring that says what belongs here"]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("engine/a.py", "import heapq\nfrom penstock.engine.queue import Queue\nfrom . import keys"),
        ("engine/a.py", "from datetime import datetime, timedelta\nx = datetime(2024, 1, 1) + timedelta(1)"),
        ("engine/a.py", "class Clock:\n    now = 1\nx = Clock().now\ny = x.open()"),
        ("wire/a.py", "import struct\nimport msgspec\nfrom penstock.engine.commands import Put"),
        ("storage/a.py", "import os\nfrom penstock import __version__\nfrom penstock.wire import frame"),
        ("node/a.py", "import asyncio\nimport penstock.storage.log\nimport penstock.consensus\nlog.print('x')"),
        ("doors/taskflux/a.py", "from penstock.node import Node\nfrom ...wire import taskflux"),
        ("cli/a.py", "import penstock.doors\nimport penstock.node\nprint('x')"),
        ("__main__.py", "from penstock.cli.main import main"),
        ("node/a.py", "\n" * 598),
    ],
)
def test_what_is_right_passes(path: str, source: str) -> None:
    assert violations(path, GOOD + source) == []


def test_an_error_in_the_tree_passes() -> None:
    assert violations("node/errors.py", '"""Errors.\n\n    LostError\n"""\nclass LostError(Exception): ...') == []


def test_the_table_has_no_cycle() -> None:
    """Directions mean nothing if two packages may import each other. The way out through penstock itself aside."""
    done: set[str] = set()
    rest = {package: {each for each in allowed if each} for package, allowed in MAY_IMPORT.items() if package}
    while rest:
        free = {package for package, allowed in rest.items() if allowed <= done}
        assert free, f"these import each other: {sorted(rest)}"
        done |= free
        rest = {package: allowed for package, allowed in rest.items() if package not in free}


def test_the_source_is_in_order() -> None:
    paths = sorted(SOURCE.rglob("*.py"))
    assert paths, f"nothing to check in {SOURCE}"
    found = [
        each
        for path in paths
        for each in violations(path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_every_folder_of_source_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("name", ["run", "spark", "dev"])
def test_a_lock_pins_by_hash_and_names_no_place_to_download_from(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    requirements = [line for line in text.splitlines() if re.match(r"\w", line)]
    assert requirements
    for line in requirements:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)? \\", line), line
    for each in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in each, each
    assert not re.search(r"://|--(?!hash=)|^-", text, re.MULTILINE)
    assert not REGISTRY_WORDS.search(text)
