"""The edge of the HTTP API, before every route: connections, hosts, browsers, hostile requests, inert responses."""
