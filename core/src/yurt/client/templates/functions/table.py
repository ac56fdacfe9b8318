"""All functions of a task's template by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import CO_VARARGS

from yurt.client.templates.functions import times
from yurt.client.templates.functions.addresses import sockaddr
from yurt.client.templates.functions.arguments import text
from yurt.client.templates.functions.cluster import Asking, absent, products
from yurt.client.templates.functions.cluster import functions as cluster_functions
from yurt.client.templates.functions.helpers import HELPERS
from yurt.client.templates.functions.sprig_data import DATA
from yurt.client.templates.functions.sprig_text import TEXTS
from yurt.client.templates.render_protocol import RenderRequest
from yurt.gotemplate import EvaluationFailure, TemplateFunction
from yurt.gotemplate.values import kind_of

UNSAFE = ("plugin", "executeTemplate", "writeToFile")
SPRIG_ABSENT = (
    "randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes", "randInt", "shuffle", "uuidv4", "bcrypt",
    "htpasswd", "genPrivateKey", "derivePassword", "buildCustomCert", "genCA", "genCAWithKey", "genSelfSignedCert",
    "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "encryptAES", "decryptAES", "getHostByName",
    "semver", "semverCompare", "durationRound", "toDate", "mustToDate", "osBase", "osDir", "osClean", "osExt",
    "osIsAbs", "abbrevboth", "typeIsLike",
)  # fmt: skip


def table(request: RenderRequest, asking: Asking) -> dict[str, TemplateFunction]:
    """The functions over this request's environment, time and answers."""
    made = {
        **HELPERS,
        **cluster_functions(asking),
        **products(asking, request.provided),
        **_environment(request),
        **_scratch(),
        "timestamp": TemplateFunction(lambda *layout: times.timestamp(request.now, *layout), 0, 1),
        "sockaddr": TemplateFunction(sockaddr(request.addresses), 1, 1),
        **_sprig(request),
        **{name: TemplateFunction(absent("it is not available in this version")) for name in UNSAFE},
    }
    reason = "it is disabled by the operator (client.template.function_denylist)"
    return made | {name: TemplateFunction(absent(reason)) for name in request.denied if name in made}


def _environment(request: RenderRequest) -> dict[str, TemplateFunction]:
    """The task's own environment; the agent's is not accessible."""

    def needed(name: object) -> str:
        if text(name) not in request.env:
            raise EvaluationFailure(f"environment variable {text(name)} is not set")
        return request.env[text(name)]

    return {
        "env": TemplateFunction(lambda name: request.env.get(text(name), ""), 1, 1),
        "mustEnv": TemplateFunction(needed, 1, 1),
        "envOrDefault": TemplateFunction(lambda name, default: request.env.get(text(name)) or text(default), 2, 2),
    }


def _sprig(request: RenderRequest) -> dict[str, TemplateFunction]:
    calls: dict[str, Callable[..., object]] = {
        **TEXTS,
        **DATA,
        **times.sprig_times(request.now),  # type: ignore[dict-item]
        "env": lambda name: request.env.get(text(name), ""),
        "expandenv": lambda value: value,
        **{name: absent("it is not available in this version") for name in SPRIG_ABSENT},
    }
    return {f"sprig_{name}": _counted(call) for name, call in calls.items()}


def _counted(call: Callable[..., object]) -> TemplateFunction:
    """A function with exactly the arguments of its code."""
    code = getattr(call, "__code__", None)
    if code is None:
        return TemplateFunction(call)
    most = -1 if code.co_flags & CO_VARARGS else code.co_argcount
    return TemplateFunction(call, code.co_argcount - len(getattr(call, "__defaults__", None) or ()), most)


class _Scratch(dict[str, object]):
    """Values that a template stores during one rendering."""

    @property
    def go_fields(self) -> Mapping[str, object]:
        """Its methods."""
        return {
            "Key": lambda name: text(name) in self,
            "Get": lambda name: self.get(text(name)),
            "Set": self._put,
            "SetX": lambda name, value: "" if text(name) in self else self._put(name, value),
            "MapSet": self._put_inside,
            "MapSetX": lambda name, key, value: self._put_inside(name, key, value, is_new=True),
            "MapValues": lambda name: [each for _, each in sorted(self._map(name).items())],
        }

    def _put(self, name: object, value: object) -> str:
        self[text(name)] = value
        return ""

    def _map(self, name: object) -> dict[str, object]:
        found = self.setdefault(text(name), {})
        if not isinstance(found, dict):
            raise EvaluationFailure(f"{text(name)} is not a map but {kind_of(found)}")
        return found

    def _put_inside(self, name: object, key: object, value: object, *, is_new: bool = False) -> str:
        inner = self._map(name)
        if not is_new or text(key) not in inner:
            inner[text(key)] = value
        return ""


def _scratch() -> dict[str, TemplateFunction]:
    values = _Scratch()
    return {"scratch": TemplateFunction(lambda: values, 0, 0)}
