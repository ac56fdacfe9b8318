"""Shared code for drivers of container engines: Docker, Podman and any other with an HTTP API on a socket.

An engine is the truth about its containers; a driver only asks it. This package has the way to an engine (`engine`),
the eye on it (`watch`), the states of the containers that are tasks (`tasks`), their log files (`logfiles`), the
images brought for them (`images`), and small facts and checks that do not depend on the engine (`common`). What
differs by engine, its paths, its bodies and its words, stays in the driver.
"""
