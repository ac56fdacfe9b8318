"""What stands before every route: connections, hosts, browsers, strangers, and answers that stay data."""
