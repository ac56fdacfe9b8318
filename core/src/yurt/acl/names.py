"""Names of policies, roles and login methods."""

from __future__ import annotations

import re
from typing import Final

NAME: Final = re.compile(r"[a-zA-Z0-9-]{1,128}")
