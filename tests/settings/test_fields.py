"""The schema as a list: names that users type must be there, be distinct, and be what the documentation says."""

from __future__ import annotations

import re

import pytest

from penstock.settings import ListenerSettings, Settings, all_fields
from penstock.settings.fields import Field, field_of, fields_by_key, listener_fields, tables
from penstock.settings.values import allowed

PROMISED_DEFAULTS = {
    "data_dir": "penstock-data",
    "node_id": 0,
    "insecure": False,
    "log_level": "info",
    "log_format": "text",
    "storage.mode": "durable",
    "storage.interval_ms": 50,
    "storage.segment_bytes": 64 * 1024**2,
    "storage.retention_hours": 168,
    "storage.retention_bytes": 8 * 1024**3,
    "storage.snapshot_bytes": 256 * 1024**2,
    "storage.reserve_bytes": 64 * 1024**2,
    "storage.sync_thread": "auto",
    "storage.parquet": False,
    "limits.memory_bytes": 0,
    "limits.payload_bytes": 16 * 1024**2,
    "limits.staged_bytes": 0,
    "limits.staged_ms": 6 * 3_600_000,
    "limits.connections": 10_000,
    "limits.connections_per_address": 0,
    "limits.connections_per_door": 0,
    "limits.first_request_ms": 60_000,
    "limits.queues": 10_000,
    "limits.inflight_bytes": 64 * 1024**2,
    "limits.buffer_bytes": 0,
    "taskflux.enabled": True,
    "taskflux.host": "127.0.0.1",
    "taskflux.port": 2602,
    "taskflux.dialect": "seed000",
    "taskflux.acks": True,
    "taskflux.idle_timeout_ms": 60_000,
    "taskflux.ack_timeout_ms": 60_000,
    "taskflux.advertise": "",
    "etzel.enabled": True,
    "etzel.host": "127.0.0.1",
    "etzel.port": 8080,
    "etzel.origins": "",
    "monique.enabled": True,
    "monique.config": "",
    "monique.host": "127.0.0.1",
    "monique.gateway_host": "",
    "monique.gateway_port": 9160,
    "monique.origins": "",
    "monique.in_host": "",
    "monique.com_in_port": 9000,
    "monique.tech_in_port": 9024,
    "monique.out_host": "",
    "monique.com_out_port": 9001,
    "monique.tech_out_port": 9025,
    "monique.inner": False,
    "monique.inner_com_in_port": 9010,
    "monique.inner_tech_in_port": 9034,
    "monique.inner_com_out_port": 9011,
    "monique.inner_tech_out_port": 9035,
    "monique.controller_host": "",
    "monique.connections": "",
    "monique.task_timeout_ms": 3_600_000,
    "monique.worker_tasks": 1,
    "monique.allow_messages": "",
    "monique.dialect": "auto",
    "monique.strict_cookie": False,
    "monique.gateway_unsent_bytes": 32 * 2**20,
    "monique.zeromq_unsent": 10_000,
}


def test_every_promised_setting_has_its_default_and_there_is_no_other() -> None:
    assert {field.key: field.default for field in all_fields()} == PROMISED_DEFAULTS


def test_names_are_distinct_in_every_source() -> None:
    fields = all_fields()
    flags = [name for field in fields for name in (field.flag, field.flag_off) if name is not None]
    assert len(set(flags)) == len(flags)
    assert len({field.variable for field in fields}) == len(fields)
    assert len({field.parameter for field in fields}) == len(fields)
    assert all(field.parameter.isidentifier() for field in fields)


@pytest.mark.parametrize("field", all_fields(), ids=lambda field: field.key)
def test_a_field_tells_what_it_means_and_what_it_takes(field: Field) -> None:
    assert field.help
    assert re.search(r"[^.]$", field.help), "help is a phrase, printed beside a default, not a sentence"
    assert "None" not in allowed(field)
    assert field.metavar or field.kind == "boolean"
    if isinstance(field.default, int) and not isinstance(field.default, bool):
        assert field.minimum is not None
        assert field.maximum is not None
        assert field.minimum <= field.default <= field.maximum
    if field.kind == "choice":
        assert field.default in field.choices


def test_a_nested_key_has_its_table_in_variable_and_flag() -> None:
    field = fields_by_key()["storage.segment_bytes"]
    assert (field.variable, field.flag) == ("PENSTOCK_STORAGE_SEGMENT_BYTES", "--storage-segment-bytes")
    assert field.flag_off is None


def test_a_door_is_turned_off_by_its_own_name() -> None:
    field = fields_by_key()["taskflux.enabled"]
    assert (field.variable, field.flag, field.flag_off) == (
        "PENSTOCK_TASKFLUX_ENABLED",
        "--taskflux",
        "--no-taskflux",
    )


def test_tables_are_those_of_the_schema() -> None:
    assert tables() == ("storage", "limits", "taskflux", "etzel", "monique")


def test_a_further_listener_has_the_fields_of_the_first() -> None:
    assert set(listener_fields()) == set(ListenerSettings.__struct_fields__)
    assert field_of("taskflux.listeners[3].port") is fields_by_key()["taskflux.port"]


def test_a_closed_door_has_no_listeners_and_an_open_one_names_each() -> None:
    further = ListenerSettings(port=2603)
    settings = Settings()
    taskflux = type(settings.taskflux)(listeners=(further,))
    assert [key for key, _ in taskflux.open_listeners()] == ["taskflux", "taskflux.listeners[0]"]
    assert type(settings.taskflux)(enabled=False, listeners=(further,)).open_listeners() == []
