"""The functions of job files: a meaning and an example each; results are worked out by the parser itself."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from yurt_jobspec import parse_job
from yurt_jobspec.functions import registry

from docs.generator.markdown import code, require, table

FAMILIES = {
    "text": "Text",
    "collections": "Lists, sets and maps",
    "numeric": "Numbers",
    "encoding": "Encodings",
    "hashing": "Digests and ids",
    "network": "Addresses",
    "time": "Time",
    "files": "Files",
    "": "Conversion and failure",
}
MOTD = "motd.txt"
EXAMPLES = r"""
chomp | Without the line ends behind the text. | chomp("text\n")
format | Values put into a text. | format("%s-%03d", "web", 7)
formatlist | The same for each element of lists. | formatlist("%s.example", ["a", "b"])
indent | Spaces before every line but the first. | indent(2, "a\nb")
join | One text of a list. | join("-", ["a", "b"])
lower | In small letters. | lower("Web")
regex_replace | Replaces what a regular expression matches; `$1` is a group. | regex_replace("a1b22", "[0-9]+", "-")
replace | Replaces a text; between slashes it is a regular expression. | replace("a.b.c", ".", "-")
reverse | The text backwards. | reverse("abc")
split | A list of the parts of a text. | split(",", "a,b")
strlen | How many characters. | strlen("añb")
strrev | The text backwards. | strrev("abc")
substr | A part, by offset and length; -1 means up to the end. | substr("allocation", 0, 5)
title | Every word with a capital. | title("web server")
trim | Without these characters at both ends. | trim("--a--", "-")
trimprefix | Without this beginning. | trimprefix("v1.2", "v")
trimspace | Without spaces at both ends. | trimspace("  a ")
trimsuffix | Without this end. | trimsuffix("a.txt", ".txt")
upper | In capitals. | upper("web")
chunklist | Parts of a size. | chunklist(["a", "b", "c"], 2)
coalesce | The first that is not null. | coalesce(null, "b")
coalescelist | The first list that is not empty. | coalescelist([], ["b"])
compact | Without empty texts. | compact(["a", "", "b"])
concat | Lists one after another. | concat(["a"], ["b"])
contains | Whether a list has an element. | contains(["a", "b"], "b")
distinct | Each element once. | distinct(["a", "b", "a"])
element | An element; counts round and round. | element(["a", "b"], 3)
flatten | Lists of lists as one list. | flatten([["a"], [["b"]]])
index | The element at an index or key. | index(["a", "b"], 1)
keys | The keys of a map in order. | keys({ b = 1, a = 2 })
length | How many elements; `strlen` is for texts. | length(["a", "b"])
lookup | The value of a key, or a default. | lookup({ a = 1 }, "b", 0)
merge | Maps as one; later ones win. | merge({ a = 1 }, { a = 2, b = 3 })
range | Numbers from start to limit, without the limit. | range(1, 4)
setintersection | What all sets have. | setintersection(["a", "b"], ["b", "c"])
setproduct | Every combination. | setproduct(["a", "b"], [1, 2])
setunion | What any set has. | setunion(["a"], ["b"])
slice | The elements from start, without end. | slice(["a", "b", "c"], 1, 3)
sort | In order. | sort(["b", "a"])
values | The values of a map, in the order of its keys. | values({ b = 1, a = 2 })
zipmap | A map of a list of keys and one of values. | zipmap(["a", "b"], [1, 2])
abs | Without its sign. | abs(-3)
ceil | The next greater whole number. | ceil(1.2)
floor | The next smaller whole number. | floor(1.8)
log | The logarithm to a base. | log(8, 2)
max | The greatest. | max(1, 3, 2)
min | The smallest. | min(1, 3, 2)
parseint | A number written in another base. | parseint("ff", 16)
pow | A power. | pow(2, 10)
signum | -1, 0 or 1. | signum(-7)
base64decode | The text behind base64. | base64decode("eXVydA==")
base64encode | A text as base64. | base64encode("yurt")
csvdecode | A list of objects from CSV with a header. | csvdecode("a,b\n1,2")
jsondecode | The value of a JSON text. | jsondecode("{\"a\": [1]}")
jsonencode | A value as JSON. | jsonencode({ a = [1] })
urlencode | A text for a URL. | urlencode("a b/c")
yamldecode | The value of a YAML text. | yamldecode("a: [1, 2]")
yamlencode | A value as YAML. | yamlencode({ a = 1 })
bcrypt | A bcrypt hash; the cost may be given. | substr(bcrypt("secret", 4), 0, 7)
md5 | An MD5 digest. | md5("yurt")
rsadecrypt | The text behind an RSA ciphertext in base64. | can(rsadecrypt("AAAA", "no key"))
sha1 | A SHA-1 digest. | sha1("yurt")
sha256 | A SHA-256 digest. | substr(sha256("yurt"), 0, 16)
sha512 | A SHA-512 digest. | substr(sha512("yurt"), 0, 16)
uuidv4 | A random id. | strlen(uuidv4())
uuidv5 | An id made from a namespace and a name. | uuidv5("dns", "example.com")
cidrhost | A host of a network. | cidrhost("10.1.0.0/16", 5)
cidrnetmask | The mask of a network. | cidrnetmask("10.1.0.0/16")
cidrsubnet | A part of a network. | cidrsubnet("10.1.0.0/16", 8, 3)
cidrsubnets | Parts one after another. | cidrsubnets("10.1.0.0/16", 8, 8)
formatdate | A time in another form. | formatdate("YYYY-MM-DD", "2026-01-02T03:04:05Z")
timeadd | A later time. | timeadd("2026-01-02T03:04:05Z", "90m")
abspath | The absolute path. | basename(abspath("motd.txt"))
basename | The last part of a path. | basename("/etc/hosts")
dirname | A path without its last part. | dirname("/etc/hosts")
file | What a file holds. | file("motd.txt")
filebase64 | The same as base64. | filebase64("motd.txt")
fileexists | Whether there is a file. | fileexists("other.txt")
fileset | The files that a pattern matches. | fileset(".", "*.txt")
pathexpand | A path with `~` replaced; only inside the folder of the job file. | pathexpand("motd.txt")
can | Whether the expression has a value. | can(convert("x", number))
convert | A value as another type. | convert("8080", number)
try | The first expression that has a value. | try(element([], 0), "none")
"""


def examples() -> dict[str, tuple[str, str]]:
    """Meaning and example of each function; raises ValueError when one is missing or unknown."""
    found: dict[str, tuple[str, str]] = {}
    for line in EXAMPLES.strip().splitlines():
        name, meaning, example = line.split(" | ", 2)
        found[name] = (meaning, example)
    require("functions", registry.names(), found)
    return found


def evaluate(expressions: list[str]) -> list[str]:
    """The results as JSON texts, worked out in a folder that holds `motd.txt` ("hello")."""
    lines = "\n".join(f"    v{at} = jsonencode({text})" for at, text in enumerate(expressions))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MOTD).write_text("hello")
        job = parse_job(f'job "x" {{\n  meta {{\n{lines}\n  }}\n}}\n', filename="examples", base_dir=Path(folder))
    return [job["Meta"][f"v{at}"] for at in range(len(expressions))]


def signature(name: str) -> str:
    """`substr(str, offset, length)`."""
    function = registry.lookup(name)
    if function is None:
        return {"can": "can(expression)", "try": "try(expressions...)", "convert": "convert(value, type)"}[name]
    parts = [parameter.name for parameter in function.parameters]
    parts[function.required :] = [f"[{part}]" for part in parts[function.required :]]
    parts += [f"{function.variadic.name}..."] if function.variadic else []
    return f"{name}({', '.join(parts)})"


def family_of(name: str) -> str:
    """The table that a function stands in."""
    line = next((line.split() for line in registry.TABLE.strip().splitlines() if line.split()[0] == name), None)
    return line[1] if line else ""


def section() -> str:
    """All functions by family."""
    known = examples()
    results = dict(zip(known, evaluate([example for _, example in known.values()]), strict=True))
    parts = []
    for family, title in FAMILIES.items():
        rows = [
            (code(signature(name)), meaning, f"{code(example)} is {code(shown(results[name]))}")
            for name, (meaning, example) in sorted(known.items())
            if family_of(name) == family
        ]
        parts.append(f"### {title}\n\n" + table(("Function", "Gives", "Example"), rows))
    return "\n\n".join(parts)


def shown(result: str) -> str:
    """A result in JSON with a space behind each comma."""
    return json.dumps(json.loads(result), ensure_ascii=False)
