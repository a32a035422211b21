"""Log time and the wall clock: points in time that clients give mean the wall clock, however far the log is from it."""

from __future__ import annotations

import pytest

from penstock.engine import commands as c
from penstock.engine.machine import JUMP_US_MAX
from tests.engine.driving import START_US, Drive

HOUR_MS = 3_600_000
HOUR_US = HOUR_MS * 1000
DAY_US = 24 * HOUR_US


def drive_ahead_by(offset_us: int) -> Drive:
    """An engine whose log is this far ahead of the wall clock."""
    drive = Drive()
    drive.create("q")
    drive.do(c.Tick(drive.now_us - offset_us))
    return drive


@pytest.mark.parametrize("offset_us", [0, HOUR_US, -HOUR_US, 30 * DAY_US])
def test_a_scheduled_time_is_reached_when_the_wall_clock_shows_it(offset_us: int) -> None:
    drive = drive_ahead_by(offset_us)
    wall_us = drive.now_us - offset_us
    record_id = drive.put("q", available_at_us=wall_us + HOUR_US)
    assert drive.record("q", record_id).available_at_us == wall_us + HOUR_US
    drive.wait(HOUR_MS - 1000)
    assert drive.ready_ids("q") == []
    drive.wait(2000)
    assert drive.ready_ids("q") == [record_id]


@pytest.mark.parametrize("offset_us", [0, HOUR_US, -HOUR_US, 30 * DAY_US])
def test_an_expiry_is_reached_when_the_wall_clock_shows_it(offset_us: int) -> None:
    drive = drive_ahead_by(offset_us)
    wall_us = drive.now_us - offset_us
    record_id = drive.put("q", expires_at_us=wall_us + HOUR_US)
    assert drive.record("q", record_id).expires_at_us == wall_us + HOUR_US
    drive.wait(HOUR_MS - 1000)
    assert drive.ready_ids("q") == [record_id]
    drive.wait(2000)
    assert drive.ready_ids("q") == []


def test_durations_do_not_depend_on_the_wall_clock() -> None:
    drive = drive_ahead_by(HOUR_US)
    delayed = drive.put("q", delay_ms=1000)
    drive.do(c.Tick(drive.now_us + 5 * HOUR_US))
    assert drive.ready_ids("q") == []
    drive.wait(1000)
    assert drive.ready_ids("q") == [delayed]


def test_points_in_time_are_shown_by_the_wall_clock_of_now() -> None:
    drive = drive_ahead_by(HOUR_US)
    record_id = drive.put("q", available_at_us=START_US + DAY_US)
    drive.do(c.Tick(drive.now_us))  # the wall clock was set an hour ahead: it now shows what the log says
    shown = drive.record("q", record_id)
    assert shown.available_at_us == START_US + DAY_US + HOUR_US
    assert shown.published_us == drive.now_us


def test_a_binding_expires_its_copies_by_the_wall_clock() -> None:
    drive = drive_ahead_by(HOUR_US)
    drive.do(c.Bind("b", "spec", "", "q"))
    wall_us = drive.now_us - HOUR_US
    drive.do(c.Broadcast(0, b"tag", b"body", "spec", "", wall_us + 60_000_000))
    assert len(drive.ready_ids("q")) == 1
    drive.wait(61_000)
    assert drive.ready_ids("q") == []


def test_the_offset_survives_a_snapshot() -> None:
    drive = drive_ahead_by(HOUR_US)
    drive.restart()
    assert drive.engine.state.wall_offset_us == HOUR_US
    tick_without = c.Tick()
    drive.do(tick_without)
    assert drive.engine.state.wall_offset_us == HOUR_US


def test_a_term_that_begins_more_than_a_day_after_the_last_entry_starts_all_ages_anew() -> None:
    drive = Drive()
    first_us = drive.engine.state.kept_since_us
    drive.now_us += JUMP_US_MAX
    drive.new_term()
    assert drive.engine.state.kept_since_us == first_us
    drive.now_us += JUMP_US_MAX + 1
    drive.new_term()
    drive.restart()
    assert drive.engine.state.kept_since_us == drive.now_us
    drive.now_us += HOUR_US
    drive.new_term()
    assert drive.engine.state.kept_since_us == drive.now_us - HOUR_US
