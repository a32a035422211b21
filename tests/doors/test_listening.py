"""Opening doors: what a taken port says, and that nothing is left open after a start that failed."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from penstock.doors.errors import AddressTaken, CannotListen
from penstock.doors.server import Server
from penstock.settings import Settings, SettingsError, TaskfluxSettings
from penstock.testing import OTHER_DOORS_CLOSED


def settings(tmp_path: Path, **taskflux: object) -> Settings:
    return Settings(data_dir=str(tmp_path / "data"), taskflux=TaskfluxSettings(**taskflux), **OTHER_DOORS_CLOSED)  # type: ignore[arg-type]


def test_a_taken_port_names_door_port_setting_and_flag_and_leaves_the_data_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(AddressTaken) as caught:
            asyncio.run(Server(settings(tmp_path, port=port)).start())
    text = str(caught.value)
    for part in ("taskflux", str(port), "taskflux.port", "--taskflux-port", "--no-taskflux"):
        assert part in text
    assert not (tmp_path / "data").exists()


def test_an_address_that_is_not_ours_is_told(tmp_path: Path) -> None:
    elsewhere = TaskfluxSettings(host="192.0.2.1")
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1"):
        asyncio.run(Server(Settings(insecure=True, taskflux=elsewhere, **OTHER_DOORS_CLOSED)).start())


def test_a_public_address_is_refused_without_insecure(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="insecure"):
        Server(settings(tmp_path, host="0.0.0.0"))


def test_a_stopped_server_can_be_started_again_on_its_data(tmp_path: Path) -> None:
    async def once() -> int:
        server = Server(settings(tmp_path, port=0))
        await server.start()
        term = server.node.consensus.term
        await server.stop()
        return term

    assert [asyncio.run(once()) for _ in range(3)] == [1, 2, 3], "the term rises at every start"
