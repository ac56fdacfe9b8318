"""Tests of a task's output, resource usage and inputs."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from yurt.sdk.driver import LogRotation
from yurt.sdk.errors import DriverError
from yurt.testing.driver_suite.bench import DriverBench, DriverCases, needed

SAMPLES = 4
STATS_LIMIT_S = 2.5


class OutputTests:
    """Tests of log files and resource usage."""

    async def test_output_is_in_the_log_when_the_task_has_ended(self, bench: DriverBench, cases: DriverCases) -> None:
        await bench.run(needed(cases.prints, "prints")("hello from the task"))
        assert "hello from the task" in bench.output()[0].read_text()

    async def test_logs_are_rotated(self, bench: DriverBench, cases: DriverCases) -> None:
        config = needed(cases.floods, "floods")(20_000)
        await bench.run(config, logs=LogRotation(max_files=3, max_bytes=4000))
        files = bench.output()
        assert 1 < len(files) <= 3
        assert all(path.stat().st_size <= 4000 for path in files)
        assert int(files[-1].suffix[1:]) >= 4

    async def test_collection_of_logs_may_be_off(self, bench: DriverBench, cases: DriverCases) -> None:
        await bench.run(needed(cases.prints, "prints")("nobody reads this"), logs=LogRotation(disabled=True))
        assert bench.output() == []

    async def test_the_use_of_resources_is_counted(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        stats = await bench.driver.task_stats(handle.task_id)
        assert stats.at > 0
        assert not cases.uses_resources or (stats.rss_bytes > 0 and stats.pids > 0)

    async def test_the_use_of_resources_may_be_asked_often(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        loop = asyncio.get_running_loop()
        before, samples = loop.time(), []
        for _ in range(SAMPLES):
            samples.append(await bench.driver.task_stats(handle.task_id))
        assert (loop.time() - before) / SAMPLES < STATS_LIMIT_S
        assert all(earlier.at < later.at for earlier, later in pairwise(samples))
        # What of it is the kernel's is an estimate, which engines read at another moment: only the sum never falls.
        used = [sample.cpu_user_ns + sample.cpu_system_ns for sample in samples]
        assert used == sorted(used)

    async def test_a_large_environment_is_given_or_refused(self, bench: DriverBench, cases: DriverCases) -> None:
        large = {f"VARIABLE_{number}": "x" * 100 for number in range(2000)}
        handle = await bench.start(cases.ends(4), env=large)
        assert (await bench.wait(handle.task_id)).exit_code == 4

    async def test_an_environment_beyond_all_bounds_does_no_harm(self, bench: DriverBench, cases: DriverCases) -> None:
        huge = {f"VARIABLE_{number}": "x" * 100_000 for number in range(100)}
        try:
            handle = await bench.start(cases.ends(4), name="huge", env=huge)
        except DriverError as error:
            assert str(error)
        else:
            assert (await bench.wait(handle.task_id)).finished_at > 0
        assert (await bench.run(cases.ends(5), name="next")).exit_code == 5
