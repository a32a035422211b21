"""The rules of the engine as stories: a command, a line of dashes, what must come of it.

``PENSTOCK_REWRITE=1`` writes what came of it into the stories; read the change before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.storytelling import Teller

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
REWRITE = os.environ.get("PENSTOCK_REWRITE") == "1"
DASHES = "----"


def retell(story: str) -> str:
    """The story with what really came of each of its commands."""
    teller = Teller()
    blocks = [retold_block(teller, block) for block in story.strip().split("\n\n")]
    return "\n\n".join(blocks) + "\n"


def retold_block(teller: Teller, block: str) -> str:
    lines = block.split("\n")
    comment = [line for line in lines if line.startswith("#")]
    rest = lines[len(comment) :]
    if not rest:
        return block
    commands = rest[: rest.index(DASHES)] if DASHES in rest else rest
    assert commands, f"a block without a command:\n{block}"
    return "\n".join([*comment, *commands, DASHES, *teller.tell(commands)])


def test_there_is_a_story_for_each_rule() -> None:
    assert len(STORIES) >= 25


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    story = path.read_text("utf-8")
    retold = retell(story)
    if REWRITE:
        path.write_text(retold, "utf-8")
    else:
        assert retold == story
