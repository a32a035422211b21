"""Where a node's log lines go and how they look: the error stream, for people or as JSON for programs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from penstock.cli.logwriter import LogWriter
from penstock.cli.output import json_text, lines_printable, printable


class TextFormatter(logging.Formatter):
    """A line for people: time, level, what happened. Control characters that came from outside are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text; a traceback follows on lines of its own."""
        moment = datetime.fromtimestamp(record.created).astimezone().isoformat(sep=" ", timespec="milliseconds")
        line = f"{moment[:23]} {record.levelname.lower():<8} {printable(record.getMessage())}"
        return f"{line}\n{lines_printable(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """A JSON document for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """One record on one line."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json_text(document)


def set_up_logging(level: str, log_format: str) -> None:
    """Send this process's log lines from `level` on to the error stream. Logging never waits for that stream."""
    handler = LogWriter()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
