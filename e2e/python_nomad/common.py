"""What python-nomad's own tests read of the agent under test; it becomes `tests/common.py` beside them."""

from __future__ import annotations

import os

IP = os.environ["NOMAD_IP"]
NOMAD_PORT = int(os.environ["NOMAD_PORT"])
NOMAD_TOKEN: str | None = None
"""The suite's first test bootstraps access control and puts the management token here."""
NOMAD_NAMESPACE = "admin"
