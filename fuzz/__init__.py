"""A plain mutation fuzzer: `python -m fuzz --cases 100000 [--target NAME] [--seed N]`.

A target is a parser, a corpus of inputs that it accepts, and the only exceptions that may come out of it. To add one,
put a module into this package that has `NAME`, `corpus() -> list[bytes]`, `run(data: bytes) -> None` and
`ALLOWED: tuple[type[Exception], ...]`, or a tuple `TARGETS` of `Target`s where one module has several. It is found by
itself, here and in the tests. `run` may also check what must hold and fail with an AssertionError.

mutate.py makes the inputs, runner.py runs them, __main__.py is the command.
"""
