"""Mistakes of the first hour in job files, and what Yurt answers; tests/cli/test_mistakes.py makes each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_JOB = """\
%(top)sjob "shop" {
  %(job)s
  group "web" {
    %(group)s
    task "main" {
      %(driver)s
      %(task)s
      config {
        run_for = "1h"
      }
      resources {
        %(resources)s
      }
    }
  }
}
"""
_RIGHT = {
    "top": "", "job": "", "group": "", "driver": 'driver = "mock_driver"', "task": "", "resources": "cpu = 20",
}  # fmt: skip
"""What stands at each place of a job without a mistake."""


class FileMistake(NamedTuple):
    """A mistake in a job file: what stands at which place of it, and the answer in its parts.

    `parts` may hold a `whole` file, or an `end` that follows a right one; `cut`: the last brace is missing.
    """

    title: str
    parts: Mapping[str, str | bool]
    what: str
    where: str
    """Line and column."""
    fix: str
    code: int = 1
    """The exit code of `job validate`; 0 where the answer is a warning."""

    def source(self) -> str:
        """The file."""
        if "whole" in self.parts:
            return str(self.parts["whole"])
        text = _JOB % (_RIGHT | {name: part for name, part in self.parts.items() if name in _RIGHT})
        top = str(self.parts.get("top", ""))
        text = top + re.sub(r"\n(\s*\n)+", "\n", text.removeprefix(top))
        return (text.rstrip()[:-1] if self.parts.get("cut") else text) + str(self.parts.get("end", ""))

    def shown(self) -> str:
        """The lines with the mistake."""
        if self.parts.get("cut"):
            return "no } at the end"
        if not self.parts.get("driver", "x"):
            return "no driver = ..."
        return str(next(part for name, part in self.parts.items() if name != "cut")).strip("\n")


FILE_MISTAKES: tuple[FileMistake, ...] = (
    FileMistake(
        "A misspelt argument",
        {"group": "coutn = 3"},
        'An argument named "coutn" is not expected here.',
        "3:5",
        'Did you mean "count"?',
    ),
    FileMistake(
        "A misspelt block",
        {"group": "reschedul {\n      attempts = 1\n    }"},
        'Blocks of type "reschedul" are not expected here.',
        "3:5",
        'Did you mean "reschedule"?',
    ),
    FileMistake(
        "A duration without a unit",
        {"group": 'restart {\n      delay = "15"\n    }'},
        'Unsuitable value: "15" is not a duration',
        "4:16",
        'write for example "30s", "1h30m" or "250ms"',
    ),
    FileMistake(
        "A duration in words",
        {"task": 'kill_timeout = "30 seconds"'},
        'Unsuitable value: "30 seconds" is not a duration',
        "5:23",
        'write for example "30s", "1h30m" or "250ms"',
    ),
    FileMistake(
        "Memory with a unit",
        {"resources": 'memory = "32 GB"'},
        "Unsuitable value: a number is required",
        "9:19",
        "memory is a number of MiB without a unit: write memory = 32768.",
    ),
    FileMistake(
        "CPU in cores",
        {"resources": 'cpu = "2 cores"'},
        "Unsuitable value: a number is required",
        "9:16",
        "cpu is a number of MHz without a unit: write cpu = 500, or cores = 2 for whole cores.",
    ),
    FileMistake(
        "CPU both ways",
        {"resources": "cpu   = 100\n        cores = 2"},
        (
            "Task group web validation failed: Task main validation failed: Task can only ask for "
            "'cpu' or 'cores' resource, not both."
        ),
        "10:9",
        "Leave out cpu (MHz of shared cores) or cores (whole cores).",
    ),
    FileMistake(
        "A variable that nothing declares",
        {"task": "env {\n        IMAGE = var.image\n      }"},
        'This object does not have an attribute named "image".',
        "6:20",
        'Declare it outside of the job block: variable "image" { type = string }',
    ),
    FileMistake(
        "A variable without a value",
        {"top": 'variable "image" {\n  type = string\n}\n\n', "task": "env {\n        IMAGE = var.image\n      }"},
        "A used variable must be set or have a default value.",
        "1:1",
        "Pass -var image=... or add a default.",
    ),
    FileMistake(
        "A variable of an unknown type",
        {"top": 'variable "n" {\n  type = strng\n}\n\n'},
        'The keyword "strng" is not a valid type specification.',
        "2:10",
        'Did you mean "string"?',
    ),
    FileMistake(
        "A default of another type",
        {"top": 'variable "n" {\n  type    = number\n  default = "many"\n}\n\n'},
        "This default value is not compatible with the variable's type constraint: a number is required.",
        "3:14",
        "Change the default or the type, so that they fit.",
    ),
    FileMistake(
        "A local value that nothing declares",
        {"task": "env {\n        TAG = local.tag\n      }"},
        'This object does not have an attribute named "tag".',
        "6:20",
        'Declare it outside of the job block: locals { tag = "..." }',
    ),
    FileMistake(
        "A quote that is not closed",
        {"task": 'user = "root'},
        "A quoted string ends on its line.",
        "5:19",
        "Write \\n for a line end, or use a heredoc for several lines.",
    ),
    FileMistake(
        "Single quotes",
        {"task": "user = 'root'"},
        "Strings stand between double quotes.",
        "5:14",
        "Write \"text\" instead of 'text'.",
    ),
    FileMistake(
        "A colon instead of an equals sign",
        {"group": "count: 3"},
        "An argument or block definition is required here. To set an argument, use the equals sign '='.",
        "3:10",
        "Write '=' instead of ':'.",
    ),
    FileMistake(
        "A number in words",
        {"group": 'count = "three"'},
        "Unsuitable value: a number is required",
        "3:14",
        "Write a number without quotes, for example count = 3.",
    ),
    FileMistake(
        "A negative count",
        {"group": "count = -1"},
        "Task group web validation failed: Task group count can't be negative",
        "3:5",
        "Write 0 or more.",
    ),
    FileMistake(
        "An unknown job type",
        {"job": 'type = "deamon"'},
        'Invalid job type: "deamon"',
        "2:3",
        "use service, batch, system or sysbatch",
    ),
    FileMistake(
        "A task without a driver",
        {"driver": ""},
        "Task group web validation failed: Task main validation failed: Missing task driver",
        "3:5",
        ('Add driver = "docker", "exec", "raw_exec", ...; `yurt node status -verbose NODE` lists what a node has.'),
    ),
    FileMistake(
        "One value instead of a list",
        {"job": 'datacenters = "dc1"'},
        "Unsuitable value: list of string required, but have string",
        "2:18",
        'Write a list: datacenters = ["dc1"].',
    ),
    FileMistake(
        "A list instead of names and values",
        {"task": 'env = ["A=1"]'},
        "Unsuitable value: a map is required, but have tuple",
        "5:13",
        'Write names and values: env { NAME = "value" }.',
    ),
    FileMistake(
        "A port that the group does not have",
        {"group": 'service {\n      name     = "web"\n      port     = "http"\n      provider = "nomad"\n    }'},
        (
            "Task group web validation failed: Service[web] validation failed: service references "
            'unknown port label "http"'
        ),
        "5:7",
        "add it to the group's network",
    ),
    FileMistake(
        "A port out of range",
        {"group": 'network {\n      port "http" {\n        static = 99999\n      }\n    }'},
        "Task group web validation failed: Port http has invalid port 99999: it must be between 1 and 65535",
        "4:7",
        "Leave out static for a port that the scheduler chooses.",
    ),
    FileMistake(
        "An unknown type of check",
        {
            "group": (
                'service {\n      name     = "web"\n      port     = "80"\n      provider = "nomad"\n      '
                'check {\n        type     = "htpp"\n        interval = "10s"\n        timeout  = "2s"\n      '
                "}\n    }"
            )
        },
        (
            "Task group web validation failed: Service[web] validation failed: check #1 validation "
            'failed: invalid check type ("htpp")'
        ),
        "8:9",
        'Did you mean "http"?',
    ),
    FileMistake(
        "An unknown operator",
        {
            "job": (
                'constraint {\n    attribute = "${attr.kernel.name}"\n    operator  = "equals"\n    value     '
                '= "linux"\n  }'
            )
        },
        'Constraint 1 validation failed: Unknown constraint type "equals"',
        "4:5",
        (
            "use a comparison (=, !=, <, <=, >, >=), regexp, version, semver, set_contains, "
            "set_contains_any, is_set or is_not_set"
        ),
    ),
    FileMistake(
        "A cron time in words",
        {"job": 'type = "batch"\n  periodic {\n    crons = ["every day"]\n  }'},
        'periodic validation failed: cron "every day" has 2 fields; write minute hour day month weekday [year]',
        "3:3",
        'For example crons = ["*/15 * * * *"] every 15 minutes, or ["@daily"].',
    ),
    FileMistake(
        "A periodic service",
        {"job": 'periodic {\n    crons = ["@daily"]\n  }'},
        'Periodic can only be used with "batch" or "sysbatch" scheduler',
        "2:3",
        'Write type = "batch", or leave out the periodic block.',
    ),
    FileMistake(
        "An unknown restart mode",
        {"group": 'restart {\n      mode = "retry"\n    }'},
        'Task group web validation failed: Unsupported restart mode: "retry"',
        "4:7",
        "Use fail (the allocation has failed, and is replaced) or delay (try again in the next interval).",
    ),
    FileMistake(
        "More restarts than fit",
        {"group": 'restart {\n      attempts = 10\n      delay    = "15s"\n      interval = "1m"\n    }'},
        (
            "Task group web validation failed: Nomad can't restart the TaskGroup 10 times in an "
            "interval of 1m0s with a delay of 15s"
        ),
        "3:5",
        "Raise interval, or lower attempts or delay: attempts x delay must fit into interval.",
    ),
    FileMistake(
        "Healthy later than the deadline",
        {"group": 'update {\n      min_healthy_time = "10m"\n    }'},
        "Task group web validation failed: Minimum healthy time must be less than healthy deadline",
        "4:7",
        "Lower min_healthy_time or raise healthy_deadline (5m unless given).",
    ),
    FileMistake(
        "A template without a destination",
        {"task": 'template {\n        data = "x"\n      }'},
        (
            "Task group web validation failed: Task main validation failed: Template 1 validation "
            "failed: Must specify a destination for the template"
        ),
        "5:7",
        'Add destination = "local/FILE", a path in the task\'s folder.',
    ),
    FileMistake(
        "An artifact without a source",
        {"task": 'artifact {\n        destination = "local/"\n      }'},
        (
            "Task group web validation failed: Task main validation failed: Artifact 1 validation "
            "failed: source must be specified"
        ),
        "5:7",
        'Add source = "https://...", or another place that artifacts come from.',
    ),
    FileMistake(
        "A volume that the group does not have",
        {"task": 'volume_mount {\n        volume      = "data"\n        destination = "/data"\n      }'},
        (
            "Task group web validation failed: Task main validation failed: Volume Mount (0) "
            'references undefined volume "data"'
        ),
        "6:9",
        'Declare it in the group: volume "NAME" { type = "host" source = "..." }.',
    ),
    FileMistake(
        "An unknown type of volume",
        {"group": 'volume "data" {\n      type   = "nfs"\n      source = "data"\n    }'},
        (
            'Task group web validation failed: Task group volume "data" validation failed: volume has '
            'unrecognized type "nfs"'
        ),
        "4:7",
        "use host or csi",
    ),
    FileMistake(
        "An unknown network mode",
        {"group": 'network {\n      mode = "brige"\n    }'},
        'Task group web validation failed: invalid network mode "brige"',
        "4:7",
        'Did you mean "bridge"?',
    ),
    FileMistake(
        "A namespace that does not exist",
        {"job": 'namespace = "nope"'},
        'job "shop" is in nonexistent namespace "nope"',
        "2:3",
        "`yurt namespace list` lists them; make one with: yurt namespace apply NAME",
    ),
    FileMistake(
        "A node pool that does not exist",
        {"job": 'node_pool = "gpus"'},
        'job "shop" is in nonexistent node pool "gpus"',
        "2:3",
        "`yurt node pool list` lists them; make one with: yurt node pool apply FILE",
    ),
    FileMistake(
        "A priority out of range",
        {"job": "priority = 500"},
        "Job priority must be between [1, 100]",
        "2:3",
        "Write a number from 1 (last) to 100 (first).",
    ),
    FileMistake(
        "An unknown function",
        {"task": 'env {\n        A = uper("a")\n      }'},
        'There is no function named "uper".',
        "6:13",
        'Did you mean "upper"?',
    ),
    FileMistake(
        "A file that does not exist",
        {"task": 'env {\n        A = file("nope.txt")\n      }'},
        'Call to function "file" failed: no file exists at nope.txt.',
        "6:13",
        "A relative path begins at the folder of the job file.",
    ),
    FileMistake(
        "Two jobs in one file",
        {"end": '\njob "other" {\n}\n'},
        "Only one job block is allowed. Another was defined on line 1.",
        "15:1",
        "Move each job to a file of its own, and run each file.",
    ),
    FileMistake(
        "A brace that is missing",
        {"cut": True},
        (
            "There is no closing brace for this block before the end of the file. This may be caused "
            "by incorrect brace nesting elsewhere in this file."
        ),
        "1:12",
        "Add a line with } where the block ends.",
    ),
    FileMistake(
        "A file in YAML",
        {"whole": "job:\n  name: shop\n  type: service\n"},
        "An argument or block definition is required here. To set an argument, use the equals sign '='.",
        "1:4",
        "This looks like YAML, but job files are HCL: `yurt job init` writes an example to begin with.",
    ),
    FileMistake(
        "Memory with a unit and without quotes",
        {"resources": "memory = 256M"},
        "An argument definition must end with a newline.",
        "9:21",
        "memory is a number of MiB without a unit: write memory = 256.",
    ),
    FileMistake(
        "A duration without quotes",
        {"task": "kill_timeout = 30s"},
        "An argument definition must end with a newline.",
        "5:24",
        'Write a value with a unit between double quotes: kill_timeout = "30s".',
    ),
    FileMistake(
        "A path without quotes",
        {"task": "user = /root"},
        "Expected the start of an expression, but found an invalid expression token.",
        "5:14",
        'Write text between double quotes: "...".',
    ),
    FileMistake(
        "Two equals signs",
        {"group": "count == 3"},
        "An argument or block definition is required here. To set an argument, use the equals sign '='.",
        "3:11",
        "Write one '=' instead of '=='.",
    ),
    FileMistake(
        "An argument behind an opening brace",
        {"task": 'env { A = "1"\n        B = "2"\n      }'},
        (
            "An argument on the line of the opening brace makes a single-line block, "
            "which must be closed on the same line, right behind the argument."
        ),
        "5:20",
        "Begin a new line behind the opening brace.",
    ),
    FileMistake(
        "A name with spaces",
        {"whole": 'job "my shop" {\n  group "web" {\n    task "main" {\n      driver = "mock_driver"\n    }\n  }\n}\n'},
        "Job ID contains a space",
        "1:5",
        "Write the name of the job without spaces, for example with dashes.",
    ),
    FileMistake(
        "memory_max below memory",
        {"resources": "memory     = 300\n        memory_max = 200"},
        (
            "Task group web validation failed: Task main validation failed: "
            "MemoryMaxMB value (200) should be larger than MemoryMB value (300)"
        ),
        "10:9",
        "Write memory_max larger than memory, or leave it out.",
    ),
    FileMistake(
        "A maximum below the minimum",
        {"group": "scaling {\n      min = 5\n      max = 2\n    }"},
        "Task group web validation failed: Scaling policy invalid: maximum count must not be less than minimum count",
        "5:7",
        "Lower min or raise max of the scaling block.",
    ),
    FileMistake(
        "A minute that does not exist",
        {"job": 'type = "batch"\n  periodic {\n    crons = ["61 * * * *"]\n  }'},
        'periodic validation failed: cron minute "61" is not within 0 to 59',
        "3:3",
        'For example crons = ["*/15 * * * *"] every 15 minutes, or ["@daily"].',
    ),
    FileMistake(
        "A version that is no number",
        {
            "group": (
                'constraint {\n      attribute = "${attr.os.version}"\n      operator  = "version"\n'
                '      value     = "> foo"\n    }'
            )
        },
        (
            "Task group web validation failed: Constraint 1 validation failed: "
            "Version constraint is invalid: Malformed constraint: > foo"
        ),
        "6:7",
        'Write a comparison with a number, for example ">= 1.2".',
    ),
    FileMistake(
        "A block one level too high",
        {"group": "resources {\n      cpu = 100\n    }"},
        'Blocks of type "resources" are not expected here.',
        "3:5",
        "It belongs in a task block.",
    ),
    FileMistake(
        "An argument one level too high",
        {"group": 'driver = "docker"'},
        'An argument named "driver" is not expected here.',
        "3:5",
        "It belongs in a task block.",
    ),
    FileMistake(
        "A fraction of MHz",
        {"resources": "cpu = 0.5"},
        "Unsuitable value: value must be a whole number",
        "9:15",
        "cpu is a number of MHz; whole cores are asked for by cores = 1. Write a whole number, for example cpu = 500.",
    ),
    FileMistake(
        "A weight out of range",
        {
            "group": (
                'affinity {\n      attribute = "${node.class}"\n      value     = "big"\n      weight    = 200\n    }'
            )
        },
        "Unsuitable value: value must be a whole number, between -100 and 100",
        "6:19",
        "Write a whole number from -100 to 100, but not 0; a negative one keeps allocations away.",
    ),
    FileMistake(
        "A dynamic block without labels",
        {"group": 'dynamic "task" {\n      for_each = ["a"]\n      content {}\n    }'},
        "All task blocks must have 1 label (name).",
        "5:15",
        'Write labels = ["name"] in the dynamic "task" block, before content.',
    ),
    FileMistake(
        "An expression that is not closed",
        {"task": 'env {\n        ARCH = "${attr.cpu.arch"\n      }'},
        "Expected a closing brace to end the interpolation expression, but found extra characters.",
        "6:32",
        "Close the expression with }, or write $${ for the characters themselves.",
    ),
    FileMistake(
        "The same argument twice",
        {"job": "priority = 60\n  priority = 70"},
        'The argument "priority" was already set. Each argument may be set only once.',
        "3:3",
        "Leave out this line or line 2.",
    ),
    FileMistake(
        "A label that is missing",
        {"group": "network {\n      port {\n        static = 80\n      }\n    }"},
        "All port blocks must have 1 label (label).",
        "4:12",
        'Write port "name" { ... }.',
    ),
    FileMistake(
        "Two groups of one name",
        {
            "whole": (
                'job "shop" {\n  group "web" {\n    task "a" {\n      driver = "mock_driver"\n    }\n  }\n'
                '  group "web" {\n    task "a" {\n      driver = "mock_driver"\n    }\n  }\n}\n'
            )
        },
        "Job task group 2 redefines 'web' from group 1",
        "7:9",
        "Rename one of the two.",
    ),
    FileMistake(
        "Canaries that nobody asked for",
        {"group": "update {\n      auto_promote = true\n    }"},
        "Task group web validation failed: Auto Promote requires a Canary count greater than zero",
        "3:5",
        "Add canary = 1 to the update block, or leave out auto_promote.",
    ),
    FileMistake(
        "An update block in a batch job",
        {"job": 'type = "batch"', "group": "update {\n      max_parallel = 1\n    }"},
        'Task group web validation failed: Job type "batch" does not allow update block',
        "4:5",
        'Leave out the block: only jobs with type = "service" are replaced step by step and drained so.',
    ),
    FileMistake(
        "Two network blocks",
        {"group": "network {\n    }\n    network {\n    }"},
        "Task group web validation failed: Only a single network block can be specified per group",
        "5:5",
        "Put all ports of the group into one network block.",
    ),
    FileMistake(
        "A device without a count",
        {"resources": 'device "nvidia/gpu" {\n          count = 0\n        }'},
        'Task main validation failed: device "nvidia/gpu" must have a count of 1 or more',
        "10:11",
        "Write count = 1, or leave it out.",
    ),
    FileMistake(
        "A constraint on a misspelt name",
        {"group": 'constraint {\n      attribute = "${node.clas}"\n      value     = "big"\n    }'},
        "Constraint 1: no node has ${node.clas}",
        "4:7",
        'Did you mean "${node.class}"?',
        code=0,
    ),
    FileMistake(
        "A constraint on plain text",
        {"group": 'constraint {\n      attribute = "kernel.name"\n      value     = "linux"\n    }'},
        'Constraint 1: "kernel.name" is plain text, the same for every node',
        "4:7",
        'Did you mean "${attr.kernel.name}"?',
        code=0,
    ),
    FileMistake(
        "An attribute that no node has",
        {"group": 'constraint {\n      attribute = "${attr.kernel.nam}"\n      value     = "linux"\n    }'},
        'Constraint 1: no node has the attribute "kernel.nam"',
        "4:7",
        'Did you mean "${attr.kernel.name}"?',
        code=0,
    ),
    FileMistake(
        "A port variable of another name",
        {
            "group": 'network {\n      port "http" {}\n    }',
            "task": 'env {\n        PORT = "${NOMAD_PORT_htp}"\n      }',
        },
        'env.PORT: the group has no port "htp", so NOMAD_PORT_htp is not set',
        "9:9",
        'Did you mean "${NOMAD_PORT_http}"?',
        code=0,
    ),
    FileMistake(
        "A device that no node has",
        {"resources": 'device "nvidia/gpu" {\n          count = 1\n        }'},
        'device "nvidia/gpu" is on no node; no node has any device',
        "9:9",
        "`yurt plugin list` on a node says why",
        code=0,
    ),
    FileMistake(
        "A datacenter without nodes",
        {"job": 'datacenters = ["dc9"]'},
        "no node is in datacenter dc9; nodes are in dc1",
        "2:3",
        'Write datacenters = ["*"] for all; `yurt node status` shows those of the nodes.',
        code=0,
    ),
    FileMistake(
        "A variable without var.",
        {"top": 'variable "tag" {\n  default = "7"\n}\n', "task": 'env {\n        TAG = "${tag}"\n      }'},
        "The text ${tag} is left to the node: it is not the value of var.tag.",
        "9:16",
        "Write ${var.tag} if that is meant.",
        code=0,
    ),
    FileMistake(
        "A variable between quotes",
        {"top": 'variable "tag" {\n  default = "7"\n}\n', "task": 'env {\n        TAG = "var.tag"\n      }'},
        "This is the text var.tag, not the value of the variable.",
        "9:15",
        "Write var.tag without quotes.",
        code=0,
    ),
    FileMistake(
        "A number of devices in words",
        {"resources": 'device "nvidia/gpu" {\n          count = "two"\n        }'},
        "Unsuitable value: a number is required",
        "10:20",
        "Write a number without quotes, for example count = 3.",
    ),
    FileMistake(
        "A second block of its kind",
        {"task": 'config {\n        command = "date"\n      }'},
        "Only one config block is allowed.",
        "8:7",
        "Put all of it into one config block.",
    ),
    FileMistake(
        "A negative kill_timeout",
        {"task": 'kill_timeout = "-5s"'},
        "Task group web validation failed: Task main validation failed: KillTimeout must be a positive value",
        "5:7",
        'Write for example kill_timeout = "5s"',
    ),
    FileMistake(
        "A percentage above 100",
        {"group": 'spread {\n      attribute = "${a.b}"\n      target "x" {\n        percent = 120\n      }\n    }'},
        'Spread target percentage for value "x" must be between 0 and 100',
        "3:5",
        "Write a whole number from 0 to 100.",
    ),
    FileMistake(
        "A template from two places",
        {
            "task": 'template {\n        data        = "x"\n        source      = "local/x.tpl"\n'
            '        destination = "local/x"\n      }'
        },
        "Template 1 has both data and source: data is ignored",
        "5:7",
        "leave out one of the two",
        code=0,
    ),
    FileMistake(
        "A vault block",
        {"task": 'vault {\n        role = "shop"\n      }'},
        "vault is not available in this version: it will not start",
        "5:7",
        "Secrets of a job are variables: yurt var put nomad/jobs/JOB KEY=VALUE, read by a template with nomadVar.",
        code=0,
    ),
)
