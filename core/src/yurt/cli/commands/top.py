"""`yurt top`: the resource usage of allocations, jobs and nodes, live."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.suggest import did_you_mean
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import SECOND, parse_duration
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    from yurt.cli.views.top.collect import UsageSampler
    from yurt.cli.views.top.frame import Choice, Sample

INTERVAL: Final = "2s"
INTERVAL_MIN_S: Final = 0.5


def run(call: Invocation) -> int:
    """Show the usage until a key ends it; once without a terminal."""
    from yurt.cli.views.top.collect import UsageSampler
    from yurt.cli.views.top.frame import VIEWS, Choice, table_lines, totals
    from yurt.cli.views.top.usage_rows import SORTS

    is_data = wants_data(call)
    view, sort = _one_of(call, "view", VIEWS), _one_of(call, "sort", tuple(SORTS))
    choice = Choice(view=view, sort=sort, is_reversed=call.flags.is_on("reverse"))
    interval_s = _interval(call)
    collector = UsageSampler(call)
    try:
        if is_data:
            sample = collector.sample(choice)
            rows = [row.document for row in sample.rows]
            return show_data(call, {"View": view, "Sort": sort, "Note": sample.note, "Rows": rows})
        if call.flags.is_on("once") or not _is_at_terminal(call):
            sample = collector.sample(choice)
            call.screen.line(totals(sample.rows))
            call.screen.line("\n".join(table_lines(sample, view)))
            if sample.note:
                call.screen.line(sample.note)
            return 0
        return _follow(call, collector, choice, interval_s)
    finally:
        collector.close()


def _follow(call: Invocation, collector: UsageSampler, choice: Choice, interval_s: float) -> int:
    """Draw a picture each interval and after each key."""
    from yurt.cli.terminal.fullscreen import full_screen
    from yurt.cli.views.top.frame import frame, pressed
    from yurt.cli.views.top.usage_rows import ordered

    with full_screen(call.screen.stream) as screen:
        sample, due_s = collector.sample(choice), time.monotonic() + interval_s
        while True:
            size = shutil.get_terminal_size()
            screen.draw(frame(sample, choice, (size.columns, size.lines)))
            key = screen.key(max(0.0, due_s - time.monotonic()))
            after = pressed(choice, key, page=max(1, size.lines - 6)) if key else choice
            if after is None:
                return 0
            is_other, choice = after.view != choice.view, after
            sample = sample._replace(rows=tuple(ordered(sample.rows, choice.sort, is_reversed=choice.is_reversed)))
            if not is_other and time.monotonic() < due_s:
                continue
            due_s = time.monotonic() + interval_s
            if is_other or not choice.is_frozen:
                sample = _sampled(collector, choice, sample)


def _sampled(collector: UsageSampler, choice: Choice, last: Sample) -> Sample:
    """A new sample; the last one, with the reason, when the agent does not answer."""
    try:
        return collector.sample(choice)
    except YurtError as error:
        return last._replace(note=" ".join(str(error).split()))


def _is_at_terminal(call: Invocation) -> bool:
    import sys

    return call.screen.is_terminal and sys.stdin.isatty()


def _one_of(call: Invocation, flag: str, choices: tuple[str, ...]) -> str:
    value = call.flags.text(flag)
    if value not in choices:
        raise UsageError(f"-{flag}={value} is unknown{did_you_mean(value, choices)}; known are: {', '.join(choices)}")
    return value


def _interval(call: Invocation) -> float:
    value = call.flags.text("interval")
    try:
        return max(INTERVAL_MIN_S, parse_duration(value) / SECOND)
    except ValueError as error:
        raise UsageError(f"-interval: {error}") from None


COMMANDS = (
    CliCommand(
        "top",
        "Show what allocations, jobs and nodes use, live",
        run,
        (
            text("view", "What the rows are: allocs, jobs or nodes.", default="allocs"),
            text("sort", "The order: cpu, memory, gpu, vram, power or name.", default="gpu"),
            switch("reverse", "Turn the order round."),
            text("job", "Only the allocations of this job."),
            text("node", "Only this node, by the beginning of its id."),
            text("interval", "The time between two pictures; at least 500ms.", default=INTERVAL),
            switch("once", "Print one picture and end, as without a terminal."),
            *JSON_FLAGS,
        ),
        details="Keys: a, j and o show allocations, jobs and nodes; c, m, g, v, p and n sort by CPU, memory, GPU, "
        "VRAM, power and name; r reverses; space holds the picture; the arrow and page keys scroll; q ends. Amounts "
        "are used/booked, - is unknown.",
    ),
)
