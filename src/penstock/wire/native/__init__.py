"""Penstock's own protocol: frames, requests and replies. The contract in prose is docs/protocols/native.md."""
