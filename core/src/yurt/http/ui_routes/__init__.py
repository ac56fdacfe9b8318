"""Routes of the web UI and other clients that show the cluster: sessions, lists as columns, the watch, pages."""
