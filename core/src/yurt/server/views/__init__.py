"""What a caller may see of the state: a view for one request, and the rows of each kind in it."""

from yurt.server.views.rows import InNamespace, Listing, Rows, Stored
from yurt.server.views.view import View

__all__ = ["InNamespace", "Listing", "Rows", "Stored", "View"]
