"""How large a job may be, from the bounds that admission checks."""

from __future__ import annotations

from yurt.regexps.syntax import LENGTH_MAX as PATTERN_MAX
from yurt.rules import bounds
from yurt.rules.cron import LENGTH_MAX
from yurt.rules.validation.task import TEMPLATE_CHECKED_MAX, TEMPLATES_CHECKED_MAX

from docs.generator.markdown import table

ROWS = (
    ("groups", bounds.GROUPS_MAX),
    ("tasks of all groups", bounds.TASKS_MAX),
    ("constraints, affinities and spreads, those of devices included", bounds.CONSTRAINTS_MAX),
    ("constraints and affinities with a regexp", bounds.REGEXPS_MAX),
    ("characters of a regular expression", PATTERN_MAX),
    ("templates", bounds.TEMPLATES_MAX),
    ("services", bounds.SERVICES_MAX),
    ("checks of services", bounds.CHECKS_MAX),
    ("entries of all meta blocks", bounds.META_MAX),
    ("ports of all network blocks", bounds.PORTS_MAX),
    ("cron expressions", bounds.CRON_LINES_MAX),
    ("characters of a cron expression", LENGTH_MAX),
)


def section() -> str:
    """The bounds as a table."""
    rows = [(what, f"{most:,}") for what, most in ROWS]
    return (
        "## How large a job may be\n\nA job beyond a bound is refused with the bound; split it into several. "
        "The bounds keep what one job can cost a server small.\n\n"
        + table(("what, in the whole job", "at most"), rows)
        + f"\n\nOf the templates of a task, {TEMPLATES_CHECKED_MAX >> 10} KiB are parsed when the job is registered, "
        f"and none of more than {TEMPLATE_CHECKED_MAX >> 10} KiB; the others when they are rendered."
    )
