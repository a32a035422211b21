"""kill -9 of a real node under load, at random moments and at every step of a roll, a snapshot and a start.

After each start everything that the node holds is compared with what its clients noted: nothing acknowledged is lost,
nothing is doubled, the order is kept, the term has risen. The points that were hit are printed.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from penstock.storage.verify import verify
from soak.lives import Lives
from soak.process import ServedFailed, wait_until
from soak.run import LOADED_SITES, START_SITES

SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
ROUNDS = 20 if os.environ.get("PENSTOCK_SOAK") else 1

KILLS_AT_RANDOM = 30
MET_NOW_AND_THEN = {"journal.open", "temp.unlink"}
"""A start passes these only if the last life was killed in the right moment."""


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_however_often_the_node_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lives(tmp_path, SEED) as lives:
        for _ in range(ROUNDS):
            kill_everywhere(lives)
        assert lives.start()
        lives.drain()
        assert lives.judge.violations == []
        assert lives.served.stop() == 0
        assert verify(lives.data_dir).problems == []
        with capsys.disabled():
            tell(lives)
        figures = lives.judge.figures
        assert lives.kills >= 50 * ROUNDS
        assert min(figures[each] for each in ("puts acknowledged", "acks confirmed", "given back")) > 100
        missed = {*LOADED_SITES, *START_SITES} - MET_NOW_AND_THEN - lives.points.keys()
        assert not missed, f"no kill hit {sorted(missed)}"


def kill_everywhere(lives: Lives) -> None:
    """A kill at each site of a roll, a snapshot and a start, and as many at random moments, in random order."""
    plan = [(site, False) for site in (*LOADED_SITES, *[""] * KILLS_AT_RANDOM)]
    plan += [(site, True) for site in START_SITES]
    lives.random.shuffle(plan)
    # What is retired must have been rolled before, so those come last; and a first start meets other sites.
    plan.sort(key=lambda each: each[0].startswith("retention"))
    live_for_a_while(lives, "")
    for site, at_start in plan:
        if not at_start:
            live_for_a_while(lives, site)
        elif lives.start(arm=site):
            lives.load()
            lives.kill()
        assert lives.judge.violations == []


def live_for_a_while(lives: Lives, site: str) -> None:
    assert lives.start()
    lives.load()
    moment_s = lives.random.uniform(0.01, 0.3)
    if site:
        lives.kill(at=site, skip=lives.random.randrange(3))
    else:
        # Waiting is what is tested here: the kill comes at a moment that has nothing to do with what the node does.
        lives.traffic.over.wait(moment_s)
        lives.kill()


def tell(lives: Lives) -> None:
    print(f"\nkilled {lives.kills} times, longest start {lives.start_s_max:.2f} s; where it was:")
    for site, count in sorted(lives.points.items()):
        print(f"  {count:4d}  {site}")
    print("  " + ", ".join(f"{count} {what}" for what, count in sorted(lives.judge.figures.items())))


def test_a_disk_that_only_says_it_writes_is_found_out(tmp_path: Path) -> None:
    """The test bites: a node whose log writes go nowhere from some point on loses what it acknowledged.

    The journal proves it, so the next start is refused. Without the journal only the clients know.
    """
    fault = {"site": "log.write", "after": 10, "errno": 0}
    with Lives(tmp_path, SEED, storage={"segment_bytes": 2**26, "snapshot_bytes": 2**26}, fault=fault) as lives:
        lives.start()
        lives.load()
        assert wait_until(lambda: lives.traffic.put > 5000)
        lives.kill()
        assert lives.judge.violations == []
        with pytest.raises(ServedFailed, match="are gone"):
            lives.start()
        shutil.rmtree(tmp_path / "data" / "consensus" / "events")
        lives.start()
        assert lives.judge.violations
        assert all(re.search("is lost|is there again", violation) for violation in lives.judge.violations)
