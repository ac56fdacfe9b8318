"""What a caller may see of the state: a view per request, and the rows of each kind."""

from yurt.server.views.rows import Listing, NamespacedRow, Rows, Stored
from yurt.server.views.view import View

__all__ = ["Listing", "NamespacedRow", "Rows", "Stored", "View"]
