"""Mistakes of the first hour on the command line, and what Yurt answers; tests/cli/test_mistakes.py makes each."""

from __future__ import annotations

from typing import NamedTuple


class LineMistake(NamedTuple):
    """A mistake on the command line: the words after `yurt`, and the answer in its parts."""

    typed: str
    what: str
    """Names the word that is wrong."""
    fix: str
    is_refused: bool = True
    """Whether the command fails; else it answers besides."""


LINE_MISTAKES: tuple[LineMistake, ...] = (
    LineMistake(
        "jbo status",
        'There is no command "jbo"',
        'did you mean "job"?',
    ),
    LineMistake(
        "job rnu shop.nomad.hcl",
        'There is no command "job rnu"',
        'did you mean "job run"?',
    ),
    LineMistake(
        "job run",
        "This command takes one argument: <path>",
        "For additional help try: yurt job run -help",
    ),
    LineMistake(
        "job run nothing.nomad.hcl",
        "nothing.nomad.hcl: there is no such file",
        "`yurt job init` writes an example.",
    ),
    LineMistake(
        "job run shop.nomad.hcl extra",
        "This command takes one argument: <path> (got 2: shop.nomad.hcl extra)",
        "For additional help try: yurt job run -help",
    ),
    LineMistake(
        "job run -detahc shop.nomad.hcl",
        "flag provided but not defined: -detahc",
        'did you mean "-detach"?',
    ),
    LineMistake(
        "job run -check-index=abc shop.nomad.hcl",
        '-check-index needs a whole number, not "abc"',
        "`yurt job plan` prints the index of the job.",
    ),
    LineMistake(
        "job run -var image shop.nomad.hcl",
        '-var needs key=value, not "image"',
        "For example: -var image=redis:7",
    ),
    LineMistake(
        "job run -var nope=1 shop.nomad.hcl",
        "Error: Undefined -var variable",
        'A "nope" variable was set but is not among the variables that the job file declares.',
    ),
    LineMistake(
        "job run -var-file nope.hcl shop.nomad.hcl",
        "Error: Cannot read variable file",
        "nope.hcl: No such file or directory.",
    ),
    LineMistake(
        "job run -eval-priority=high shop.nomad.hcl",
        'invalid value "high" for flag -eval-priority',
        "a whole number is needed",
    ),
    LineMistake(
        "job run https://example.com/shop.nomad.hcl",
        "https://example.com/shop.nomad.hcl: job files from remote places are not available in this version",
        "fetch the file first",
    ),
    LineMistake(
        "job run .",
        ".: cannot be read: Is a directory",
        "Name a file, not a folder.",
    ),
    LineMistake(
        "job run -namespace=nope shop.nomad.hcl",
        'job "shop" is in nonexistent namespace "nope"',
        "`yurt namespace list` lists them",
    ),
    LineMistake(
        "job run -file-access=home shop.nomad.hcl",
        "-file-access",
        "is one of all, folder, none",
    ),
    LineMistake(
        "job status -address=http://127.0.0.1:1",
        "Error: No agent answers at http://127.0.0.1:1",
        "Start one with `yurt agent -dev`, or name the agent's address with -address or NOMAD_ADDR.",
    ),
    LineMistake(
        "job status -address=http://nohost.invalid:4646",
        "Error: The host name in http://nohost.invalid:4646 cannot be resolved",
        "name the agent's address with -address or NOMAD_ADDR.",
    ),
    LineMistake(
        "job status wbe",
        'No job(s) with prefix or id "wbe" found',
        'Did you mean "web"?',
    ),
    LineMistake(
        "job status nothing",
        'No job(s) with prefix or id "nothing" found',
        "List them with: yurt job status",
    ),
    LineMistake(
        "job scale web",
        "This command takes two or three arguments: <job> [<group>] <count> (got 1: web)",
        "For additional help try: yurt job scale -help",
    ),
    LineMistake(
        "job scale web group many",
        "The count",
        "must be a whole number",
    ),
    LineMistake(
        "job history -version=9 web",
        'The job "web" has no version "9"',
        "`yurt job history JOB` lists the versions.",
    ),
    LineMistake(
        "job dispatch web",
        'Error: Specified job "web" is not a parameterized job',
        "Run it with: yurt job run FILE",
    ),
    LineMistake(
        "job periodic force web",
        "Error: can't force launch non-periodic job",
        "Give the job a periodic block, or run it with: yurt job run FILE",
    ),
    LineMistake(
        "job plan -diff=maybe shop.nomad.hcl",
        'invalid boolean value "maybe" for -diff',
        "parse error (use -diff, -diff=true or -diff=false)",
    ),
    LineMistake(
        "job status -json -t={{.ID}} web",
        "Both json and template formatting are not allowed",
        "Leave out -json or -t.",
    ),
    LineMistake(
        "job validate -format=xml shop.nomad.hcl",
        '-format is one of text, json, sarif, not "xml"',
        "is one of text, json, sarif",
    ),
    LineMistake(
        "alloc logs zz",
        'No allocation(s) with prefix or id "zz" found',
        "List them with: yurt job allocs JOB",
    ),
    LineMistake(
        "alloc status web",
        'No allocation(s) with prefix or id "web" found',
        '"web" is a job; its allocations are listed by: yurt job allocs web',
    ),
    LineMistake(
        "alloc status 1",
        "Identifier must contain at least two characters.",
        "Give more characters of the id, or all of it.",
    ),
    LineMistake(
        "alloc signal -s SIGFOO web",
        '"SIGFOO" is not a signal',
        "use a name such as SIGHUP or SIGUSR1",
    ),
    LineMistake(
        "alloc pause -state=stop web",
        '-state is one of pause, run, scheduled, not "stop"',
        "is one of pause, run, scheduled",
    ),
    LineMistake(
        "node status worker",
        'No node(s) with prefix or id "worker" found',
        'The node named "worker" has the id 11111111; nodes are given by id',
    ),
    LineMistake(
        "node drain 11111111",
        "Either the '-enable', '-disable' or '-monitor' flag must be set",
        "For additional help try: yurt node drain -help",
    ),
    LineMistake(
        "node drain -enable -disable -self",
        "-enable and -disable contradict each other",
        "leave out one of the two",
    ),
    LineMistake(
        "node drain -enable -deadline=soon 11111111",
        '-deadline: "soon" is not a duration',
        "such as 30s or 1h30m",
    ),
    LineMistake(
        "eval status ffff",
        'No evaluation(s) with prefix or id "ffff" found',
        "`yurt eval list` lists them.",
    ),
    LineMistake(
        "deployment status ffff",
        'No deployment(s) with prefix or id "ffff" found',
        "`yurt deployment list` lists them.",
    ),
    LineMistake(
        "namespace delete nothing",
        "Error: Namespace not found",
        "`yurt namespace list` lists them.",
    ),
    LineMistake(
        "namespace status nope",
        "Error: Namespace not found",
        "`yurt namespace list` lists them.",
    ),
    LineMistake(
        "var get nothing",
        "Variable not found",
        "`yurt var list` shows the paths; -namespace names another namespace.",
    ),
    LineMistake(
        "var put secret/x",
        "The variable has no items",
        "give at least one as key=value or in the file",
    ),
    LineMistake(
        "var put secret/x a",
        '"a" is not a valid item',
        "give items as key=value",
    ),
    LineMistake(
        "quota status nope",
        "Error: quota not found",
        "`yurt quota list` lists them.",
    ),
    LineMistake(
        "operator snapshot inspect shop.nomad.hcl",
        "shop.nomad.hcl: the file is not a snapshot of Yurt: it is text; a snapshot is a gzip archive of "
        "meta.json, state.bin and SHA256SUMS",
        "Save one with: yurt operator snapshot save FILE",
    ),
    LineMistake(
        "operator snapshot restore nothing.snap",
        "nothing.snap: cannot be read: No such file or directory",
        "Check the path; it is relative to the present folder.",
    ),
    LineMistake(
        "operator scheduler set-config -scheduler-algorithm=spraed",
        "-scheduler-algorithm",
        "must be binpack or spread",
    ),
    LineMistake(
        "operator gossip keyring list",
        "There is no gossip key to list.",
        (
            "Yurt's servers have no gossip key: they encrypt and authenticate everything that they say "
            "to each other by mutual TLS."
        ),
    ),
    LineMistake(
        "operator debug -duration=abc",
        "-duration must be a duration",
        'such as 30s, not "abc"',
    ),
    LineMistake(
        "acl token self",
        "No token present in the environment or set via the CLI flag",
        "Give one with -token or NOMAD_TOKEN; `yurt login` gets one.",
    ),
    LineMistake(
        "volume status nothing",
        'No volume(s) with prefix or ID "nothing" found',
        "`yurt volume status` lists them.",
    ),
    LineMistake(
        "plugin status -type=foo",
        'unknown plugin type "foo"',
        'it is "csi"',
    ),
    LineMistake(
        "system gcc",
        'There is no command "system gcc"',
        'did you mean "system gc"?',
    ),
    LineMistake(
        "monitor -log-level=LOUD",
        "Error: Unknown log level: LOUD",
        "Use TRACE, DEBUG, INFO, WARN or ERROR.",
    ),
    LineMistake(
        "tls cert create -server",
        "nomad-agent-ca.pem: cannot be read: No such file or directory",
        "Make the authority first: yurt tls ca create",
    ),
    LineMistake(
        "ui nothing",
        'No job, allocation or node has the id "nothing"',
        "`yurt job status` and `yurt node status` list them.",
    ),
    LineMistake(
        "-address=http://127.0.0.1:4646 job status",
        'There is no flag "-address=http://127.0.0.1:4646"',
        "Flags stand behind the command: yurt COMMAND -FLAG",
    ),
    LineMistake(
        "job scale web web -1",
        "flag provided but not defined: -1",
        'a negative number stands behind "--"',
    ),
    LineMistake(
        "job revert web 9",
        'job "web" in namespace "default" at version 9 not found',
        "`yurt job history JOB` lists the versions.",
    ),
    LineMistake(
        "acl token list",
        "ACL support disabled: the agent runs without access control",
        "Turn it on with acl { enabled = true }, or try it out: yurt agent -dev -acl",
    ),
    LineMistake(
        "scaling policy info zz",
        'No scaling policies with prefix or id "zz" found',
        "`yurt scaling policy list` lists them.",
    ),
    LineMistake(
        "plugin status nothing",
        'No plugin(s) with prefix or ID "nothing" found',
        "`yurt plugin status` lists them.",
    ),
    LineMistake(
        "operator snapshot save nofolder/x.snap",
        "nofolder/x.snap: cannot be written: No such file or directory",
        "Make the folder first, or name another.",
    ),
    LineMistake(
        "job status -namespace=nope",
        'There is no namespace "nope"',
        "`yurt namespace list` lists them; make one with: yurt namespace apply NAME",
        is_refused=False,
    ),
    LineMistake(
        "job status -namespace=nope web",
        'There is no namespace "nope"',
        "`yurt namespace list` lists them; make one with: yurt namespace apply NAME",
    ),
    LineMistake(
        "alloc status -namespace=nope 1111",
        'There is no namespace "nope"',
        "`yurt namespace list` lists them; make one with: yurt namespace apply NAME",
    ),
    LineMistake(
        "var list -namespace=nope",
        'There is no namespace "nope"',
        "`yurt namespace list` lists them; make one with: yurt namespace apply NAME",
        is_refused=False,
    ),
    LineMistake(
        "service list -namespace=nope",
        'There is no namespace "nope"',
        "`yurt namespace list` lists them; make one with: yurt namespace apply NAME",
        is_refused=False,
    ),
    LineMistake(
        "operator api nope",
        "The agent answered 404 Not Found",
        "Paths of the API begin with /v1/, for example: yurt operator api /v1/jobs",
    ),
    LineMistake("operator api -X FOO /v1/jobs", '"FOO" is not a method of the API', "use GET, PUT, POST, DELETE"),
    LineMistake(
        "operator api -X PUT /v1/nodes", "/v1/nodes has no PUT", "give another method with -X (GET, POST, DELETE)"
    ),
    LineMistake(
        "scaling policy list -type=zz",
        '"zz" is not a type of scaling policy',
        "use horizontal, vertical_cpu, vertical_mem",
    ),
    LineMistake("service delete web 1234", "service registration not found", "`yurt service list` lists the services"),
    LineMistake(
        "namespace apply -quota=nope team", 'names quota "nope", which does not exist', "`yurt quota list` lists them"
    ),
    LineMistake("volume create shop.nomad.hcl", 'unknown key "job"', "run a job with: yurt job run FILE"),
)
