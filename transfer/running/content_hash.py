"""The hash that names cached and unfinished work after all that determines it."""

import hashlib
import json
from typing import Any


def content_hash(content: Any, num_digits: int) -> str:
    """Return the first hex digits of the SHA-256 of a content that json can store."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:num_digits]
