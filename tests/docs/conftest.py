"""The generator of the pages is imported from the checkout: it belongs to no distribution."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
