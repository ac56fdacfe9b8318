"""The leader's queues as pure machines: ready evaluations, blocked evaluations, plans."""

from yurt.broker.blocked import BlockedEvals, Superseded
from yurt.broker.eval_broker import DELIVERY_LIMIT, FAILED_QUEUE, BrokerStats, Delivery, EvalBroker, QueueCount
from yurt.broker.plan_queue import PlanQueue, cut_plan, size_of

__all__ = [
    "DELIVERY_LIMIT",
    "FAILED_QUEUE",
    "BlockedEvals",
    "BrokerStats",
    "Delivery",
    "EvalBroker",
    "PlanQueue",
    "QueueCount",
    "Superseded",
    "cut_plan",
    "size_of",
]
