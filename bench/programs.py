"""Where the programs of others are: on the path, or fetched as Debian packages and unpacked beside our data.

Unpacking instead of installing leaves the system as it is: no service is started or enabled, and no rights are needed
beyond those to read the package lists.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.errors import ServerMissing

_INSTALLS = re.compile(r"^Inst (\S+)", re.MULTILINE)
_LIBRARY_FOLDERS = ("usr/lib", "lib")
_FETCH_LIMIT_S = 300


@dataclass(frozen=True)
class Program:
    """A program and what its environment needs."""

    path: Path
    library_path: str = ""

    def environment(self) -> dict[str, str]:
        """Our environment, with the program's own libraries in front."""
        environment = dict(os.environ)
        if self.library_path:
            before = environment.get("LD_LIBRARY_PATH")
            environment["LD_LIBRARY_PATH"] = f"{self.library_path}:{before}" if before else self.library_path
        return environment


class Programs:
    """Finds programs by their Debian package; each is looked for once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, Program | ServerMissing] = {}

    def find(self, package: str) -> Program:
        """The program of the same name as its package. Raises ServerMissing with advice if it cannot be had."""
        if package not in self._found:
            try:
                self._found[package] = self._find(package)
            except ServerMissing as missing:
                self._found[package] = missing
        found = self._found[package]
        if isinstance(found, ServerMissing):
            raise found
        return found

    def _find(self, package: str) -> Program:
        on_path = shutil.which(package)
        if on_path is not None:
            return Program(Path(on_path))
        folder = self._folder / package
        if not (folder / "usr/bin" / package).exists():
            self._fetch(package, folder)
        libraries = {str(file.parent) for name in _LIBRARY_FOLDERS for file in sorted((folder / name).rglob("*.so*"))}
        return Program(folder / "usr/bin" / package, ":".join(sorted(libraries)))

    def _fetch(self, package: str, folder: Path) -> None:
        """Download the package and what it needs that is not installed, and unpack all of it."""
        hint = f"install it (Debian and Ubuntu: apt-get install {package}) to have its figures"
        if shutil.which("apt-get") is None:
            raise ServerMissing(package, hint)
        unpacked = folder.with_name(folder.name + ".part")
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir(parents=True)
        try:
            _run(["apt-get", "download", *self._packages(package)], unpacked)
            for archive in sorted(unpacked.glob("*.deb")):
                _run(["dpkg-deb", "--extract", archive.name, "."], unpacked)
                archive.unlink()
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(unpacked, ignore_errors=True)
            raise ServerMissing(package, f"{hint}; fetching it failed: {_reason(error)}") from error
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)

    def _packages(self, package: str) -> list[str]:
        """What an installation would bring, by apt-get's own account."""
        simulate = ["apt-get", "install", "--simulate", "--no-install-recommends", package]
        try:
            text = _run(simulate, self._folder)
        except subprocess.CalledProcessError:
            if os.geteuid() != 0:
                raise
            # A fresh system has no package lists; only root may fetch them.
            _run(["apt-get", "update"], self._folder)
            text = _run(simulate, self._folder)
        return _INSTALLS.findall(text)


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=_FETCH_LIMIT_S
    )
    return done.stdout


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr).strip().splitlines()
        return lines[-1] if lines else str(error)
    return str(error)
