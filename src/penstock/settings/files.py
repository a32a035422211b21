"""Reading a file that somebody wrote by hand, with a bound on its length."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.settings.errors import ConfigFileError

CONFIG_BYTES_MAX: Final = 1024 * 1024


def read_config_file(path: Path) -> bytes:
    """All bytes of a file. Raises ConfigFileError where it cannot be read or is too long."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigFileError(str(path), f"cannot be read: {error.strerror or error}") from error
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigFileError(str(path), f"is longer than {CONFIG_BYTES_MAX} bytes")
    return data
