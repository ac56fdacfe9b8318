"""The functions that task templates call: consul-template's, with Sprig's under the prefix `sprig_`.

All are pure. What they need of the outside is given to `table`: the environment, the answers to questions, the time.
"""

from __future__ import annotations

from yurt.client.templates.functions.table import table

__all__ = ["table"]
