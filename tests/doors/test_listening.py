"""Opening doors: what a taken port says, and that nothing is left open after a start that failed."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from penstock.doors.errors import AddressTaken, CannotListen, CannotListenOn
from penstock.doors.server import Server
from penstock.settings import EtzelSettings, MoniqueSettings, Settings, SettingsError, Source, TaskfluxSettings
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


def ports_taken(*ports: int) -> list[socket.socket]:
    """Other programs on these ports; 0 for any."""
    return [socket.create_server(("127.0.0.1", port)) for port in ports]


def several_doors(tmp_path: Path, ports: list[int], chosen: frozenset[str] = frozenset()) -> Settings:
    """Three doors: TaskFlux on a free port, Etzel and MoniQue's gateway and com_in on these."""
    monique = MoniqueSettings(
        gateway_port=ports[1], com_in_port=ports[2], com_out_port=0, tech_in_port=0, tech_out_port=0
    )
    sources = {key: Source("flag", f"--{key}") for key in chosen}
    return Settings(
        data_dir=str(tmp_path / "data"),
        taskflux=TaskfluxSettings(port=0),
        etzel=EtzelSettings(port=ports[0]),
        monique=monique,
        sources=sources,
    )


def test_all_taken_ports_are_reported_at_once_with_the_setting_of_each(tmp_path: Path) -> None:
    others = ports_taken(0, 0, 0)
    ports = [other.getsockname()[1] for other in others]
    with pytest.raises(CannotListenOn) as caught:
        asyncio.run(Server(several_doors(tmp_path, ports)).start())
    for key, port in zip(("etzel.port", "monique.gateway_port", "monique.com_in_port"), ports, strict=True):
        assert key in str(caught.value)
        assert str(port) in str(caught.value)
    for other in others:
        other.close()


def start_and_stop(server: Server) -> None:
    async def run() -> None:
        await server.start()
        await server.stop()

    asyncio.run(run())


def test_a_door_whose_default_port_is_taken_may_stay_closed_while_the_others_open(tmp_path: Path) -> None:
    (other,) = ports_taken(0)
    with other:
        server = Server(several_doors(tmp_path, [0, 0, other.getsockname()[1]]), may_close_doors=True)
        start_and_stop(server)
    assert {listener.door for listener in server.listeners} == {"taskflux", "etzel"}
    assert [(closed.door, closed.key) for closed in server.closed_doors] == [("monique", "monique.com_in_port")]


def test_a_door_is_not_closed_for_a_port_that_somebody_chose(tmp_path: Path) -> None:
    others = ports_taken(0, 0)
    ports = [other.getsockname()[1] for other in others]
    chosen = several_doors(tmp_path, [ports[0], 0, ports[1]], frozenset({"monique.com_in_port"}))
    with pytest.raises(CannotListenOn) as caught:
        start_and_stop(Server(chosen, may_close_doors=True))
    assert len(caught.value.problems) == 2, "the door that could stay closed is reported, too"
    for other in others:
        other.close()


def test_the_native_door_never_stays_closed(tmp_path: Path) -> None:
    (other,) = ports_taken(0)
    with other, pytest.raises(AddressTaken, match=r"taskflux\.port"):
        start_and_stop(Server(settings(tmp_path, port=other.getsockname()[1]), may_close_doors=True))


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
