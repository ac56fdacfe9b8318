"""This leader's start forecasts and their outcomes, by pool, since its term began."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.queue.accuracy import Accuracy, Forecast, Summary
from yurt.queue.waiting_job import JobKey
from yurt.state import Changes


class Forecasts:
    """The accuracy of each pool's forecasts."""

    def __init__(self) -> None:
        self._pools: dict[str, Accuracy] = {}

    def of(self, pool: str) -> Accuracy:
        """The accuracy of a pool's forecasts."""
        return self._pools.setdefault(pool, Accuracy())

    def note(self, pool: str, found: Mapping[JobKey, Forecast]) -> None:
        """Record the first forecasts of jobs, and those shown to callers."""
        accuracy = self.of(pool)
        accuracy.note(found, {key: accuracy.corrected(key, forecast) for key, forecast in found.items()})

    def follow(self, changes: Changes) -> None:
        """Record the jobs that started, and those that left the queue."""
        if not self._pools:
            return
        for change in changes:
            if change.table == "allocs" and change.before is None and change.after.job is not None:
                accuracy = self._pools.get(change.after.job.node_pool)
                if accuracy is not None:
                    accuracy.started((change.after.namespace, change.after.job_id), change.after.create_time)
            elif change.table == "jobs" and change.before is not None and (change.after is None or change.after.stop):
                accuracy = self._pools.get(change.before.node_pool)
                if accuracy is not None:
                    accuracy.left((change.before.namespace, change.before.id))

    def corrected(self, pool: str, key: JobKey, forecast: Forecast) -> Forecast:
        """The forecast of a job, corrected by the outcome of earlier ones."""
        accuracy = self._pools.get(pool)
        return forecast if accuracy is None else accuracy.corrected(key, forecast)

    def summary(self, pool: str) -> Summary | None:
        """The accuracy of forecasts; None before the first start."""
        accuracy = self._pools.get(pool)
        return None if accuracy is None else accuracy.summary()
