"""Adds a line of advice below error messages that have none.

Texts of servers are Nomad's, which scripts compare; so the advice stands here and not in them.
"""

from __future__ import annotations

import os
import re

OFF = frozenset({"0", "f", "false"})
UNKNOWN_PLACES = (
    (r"nonexistent namespace", "`yurt namespace list` lists them; make one with: yurt namespace apply NAME"),
    (r"nonexistent node pool", "`yurt node pool list` lists them; make one with: yurt node pool apply FILE"),
)
"""Things that a job or a command may name although they do not exist."""
_FIXES = (
    (r"^Namespace not found", "`yurt namespace list` lists them."),
    (r"^There is no namespace", "`yurt namespace list` lists them; make one with: yurt namespace apply NAME"),
    (r"^Variable not found", "`yurt var list` shows the paths; -namespace names another namespace."),
    (r"[Qq]uota not found", "`yurt quota list` lists them."),
    (r"node pool not found|[Nn]ode pool .* not found", "`yurt node pool list` lists them."),
    (r"^No volume\(s\) with prefix", "`yurt volume status` lists them."),
    (r"^No token present", "Give one with -token or NOMAD_TOKEN; `yurt login` gets one."),
    (r"^Unknown log level", "Use TRACE, DEBUG, INFO, WARN or ERROR."),
    (r"agent-ca(-key)?\.pem: cannot be read: No such file", "Make the authority first: yurt tls ca create"),
    (r"^no file .* in the allocation", "`yurt alloc fs ALLOCATION` lists the files."),
    (r"^No job, allocation or node has the id", "`yurt job status` and `yurt node status` list them."),
    (r"^Both json and template formatting", "Leave out -json or -t."),
    (r"has no version|^job .* at version \d+ not found", "`yurt job history JOB` lists the versions."),
    (r"ACL support disabled", "Turn it on with acl { enabled = true }, or try it out: yurt agent -dev -acl"),
    (r"^No root key\(s\) with prefix", "`yurt operator root keyring list` lists them."),
    (
        r"client token missing policies or roles$",
        "Give -policy or -role-name, or make a management token: -type=management",
    ),
    (
        r"^ACL bootstrap already done",
        "Is the management token lost? Write this index into acl-bootstrap-reset in the server folder of the leader's "
        "data_dir, and bootstrap again.",
    ),
    (r"^No scaling policies with", "`yurt scaling policy list` lists them."),
    (r"^No plugin\(s\) with prefix", "`yurt plugin status` lists them."),
    (r"cannot be written: No such file or directory", "Make the folder first, or name another."),
    (r"can't promote terminal deployment", "`yurt job deployments JOB` lists them; only one that runs has canaries."),
    (r"^The group .* does not exist|[Tt]ask group .* does not exist", "`yurt job status JOB` shows the groups."),
    (r"^-check-index needs", "`yurt job plan` prints the index of the job."),
    (r"^-var needs key=value", "For example: -var image=redis:7"),
    (r"cannot be read: Is a directory", "Name a file, not a folder."),
    (r"can't dispatch non-parameterized|not a parameterized job", "Run it with: yurt job run FILE"),
    (r"^Identifier must contain at least two", "Give more characters of the id, or all of it."),
    (r"No path to region|unknown region|no path to region", "`yurt server members` shows the regions."),
    (r"^The agent answered 404", "Paths of the API begin with /v1/, for example: yurt operator api /v1/jobs"),
    (r"^service registration not found", "`yurt service list` lists the services, `yurt service info NAME` their ids."),
    (r"names quota .* which does not exist", "`yurt quota list` lists them; make one with: yurt quota apply FILE"),
    (r'unknown (key|block) "job"', "This is the file of a job; run a job with: yurt job run FILE"),
    (r"^Must specify an auth method name", "Name one with -method; `yurt acl auth-method list` lists them."),
    *UNKNOWN_PLACES,
    (r"is not a snapshot of Yurt", "Save one with: yurt operator snapshot save FILE"),
    (
        r"not a period(ic)? job|not periodic|non-periodic",
        "Give the job a periodic block, or run it with: yurt job run FILE",
    ),
    (
        r"^[^/].*(there is no such file|No such file or directory)$",
        "Check the path; it is relative to the present folder.",
    ),
    (r"^No evaluation\(s\) with prefix [^\n]*$", "`yurt eval list` lists them."),
    (r"^No deployment\(s\) with prefix [^\n]*$", "`yurt deployment list` lists them."),
)
"""Patterns of errors, and the advice; the first match applies."""


def shows_hints() -> bool:
    """Whether commands say what may be done next; NOMAD_CLI_SHOW_HINTS turns that off."""
    return os.environ.get("NOMAD_CLI_SHOW_HINTS", "1").lower() not in OFF


def advice(error: str) -> str:
    """The advice for an error; empty when its text has it, none is known, or hints are off."""
    if not shows_hints():
        return ""
    return next((fix for pattern, fix in _FIXES if re.search(pattern, error)), "")
