"""One listener per protocol. A door parses, submits commands and writes replies; it knows no queue logic."""
