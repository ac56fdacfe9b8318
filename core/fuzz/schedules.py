"""Targets for cron expressions: one is refused with its field, or its next times come in order and at its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from yurt.rules.cron import parse
from yurt.sdk.errors import Invalid

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca")
START = datetime(2026, 1, 1, tzinfo=UTC)
NEXT_TIMES = 4


def cron(data: bytes) -> None:
    """The first byte chooses the zone, the next two the day to begin at, the rest is the expression."""
    text = data[3:].decode("utf-8", "surrogateescape")
    zone = ZoneInfo(ZONES[data[0] % len(ZONES)]) if data else ZoneInfo("UTC")
    moment = (START + timedelta(hours=int.from_bytes(data[1:3], "big"))).astimezone(zone)
    try:
        found = parse(text)
    except Invalid as error:
        assert str(error)
        return
    for _ in range(NEXT_TIMES):
        following = found.next_after(moment)
        if following is None:
            return
        assert following.astimezone(UTC) > moment.astimezone(UTC), (text, moment, following)
        assert following.hour in found.hours and following.minute in found.minutes, (text, following)
        assert following.second in found.seconds and following.month in found.months, (text, following)
        moment = following


TARGETS: dict[str, Callable[[bytes], None]] = {"cron": cron}
SEEDS: dict[str, Iterable[bytes]] = {
    "cron": tuple(
        b"\1\3\0" + line
        for line in (
            b"*/15 0-6,22 * * MON-FRI", b"0 0 2 LW 3 ? 2027/2", b"@weekly", b"30 2 15W,31W * 5#3,1L",
            b"5/20 * ? JAN-DEC 7", b"0-59 0-59 0-23 29 2 ? *", b"0 22-2 * * *",
        )
    ),
}  # fmt: skip
