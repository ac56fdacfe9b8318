"""Tables, indexes, watches and the columnar view: what applying the log leads to."""
