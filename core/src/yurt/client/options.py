"""The client's `options`: enabled drivers and fingerprints, and warnings about unknown options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from yurt.sdk.value import Value

DRIVER, FINGERPRINT = "driver", "fingerprint"
KNOWN: Final = frozenset({
    "driver.allowlist", "driver.denylist", "driver.docker.volumes", "driver.raw_exec.enable", "env.denylist",
    "ephemeral_disk.over_size", "fingerprint.allowlist", "fingerprint.denylist", "memory_pressure",
    "plugin.env.allowlist", "plugin.mtls", "usage_history", "usage_history.device_interval", "user.checked_drivers",
    "user.denylist",
})  # fmt: skip
"""Options of the client and of built-in plugins."""
OLD_NAMES: Final = {
    "driver.allowlist": "driver.whitelist", "driver.denylist": "driver.blacklist", "env.denylist": "env.blacklist",
    "fingerprint.allowlist": "fingerprint.whitelist", "fingerprint.denylist": "fingerprint.blacklist",
    "user.denylist": "user.blacklist",
}  # fmt: skip
"""Deprecated spellings of options, used when the current one is not given."""
CUTOFF: Final = 0.6


class NameFilter(Value):
    """An allow list and a deny list of names: without an allow list, all names but the denied are enabled."""

    kind: str
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    def refusal(self, name: str) -> str:
        """The reason why a name is disabled; "" when it is enabled."""
        if name in self.denied:
            return f'client.options "{self.kind}.denylist" names it, take it off to enable it'
        if self.allowed is not None and name not in self.allowed:
            return f'client.options "{self.kind}.allowlist" does not name it, add it to enable it'
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names in the lists."""
        return (*(self.allowed or ()), *self.denied)


def choice_of(kind: str, options: Mapping[str, str]) -> NameFilter:
    """The allow and deny lists of drivers or fingerprints in the options; an empty list has no effect."""
    allowed = words(option(options, f"{kind}.allowlist"))
    return NameFilter(kind=kind, allowed=allowed or None, denied=words(option(options, f"{kind}.denylist")))


def option(options: Mapping[str, str], name: str) -> str:
    """An option by its name or its deprecated name."""
    return options.get(name) or options.get(OLD_NAMES.get(name, name)) or ""


def words(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list such as `"a, b"`."""
    return tuple(filter(None, (word.strip() for word in text.split(","))))


class RecordedOptions(Mapping[str, str]):
    """The options for plugins; records which were read, because plugins have options of their own."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.asked: set[str] = set()
        self._options = options

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)


class DriverChoice:
    """Decides which drivers an agent uses, and warns about options without effect."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = RecordedOptions(options)
        self._given = options
        self._choice = choice_of(DRIVER, options)
        self._drivers: set[str] = set()

    def refusal(self, name: str) -> str:
        """The reason why an installed driver is disabled; "" when it is enabled."""
        self._drivers.add(name)
        return self._choice.refusal(name)

    def warnings(self, fingerprints: Iterable[str]) -> list[str]:
        """Warnings about unknown options and list entries; call it after plugins were loaded."""
        built_in = KNOWN | frozenset(OLD_NAMES.values())
        found = [
            f'client.options "{name}": unknown option{_near(name, built_in)}'
            for name in sorted(set(self._given) - built_in - self.options.asked)
        ]
        for kind, names in ((DRIVER, frozenset(self._drivers)), (FINGERPRINT, frozenset(fingerprints))):
            found += [
                f'client.options {kind} lists name "{name}", which is not an installed {kind}{_near(name, names)}'
                for name in dict.fromkeys(choice_of(kind, self._given).names)
                if name not in names
            ]
        return found


def _near(name: str, candidates: Iterable[str]) -> str:
    names = sorted(candidates)
    from difflib import get_close_matches

    found = get_close_matches(name, names, n=1, cutoff=CUTOFF)
    return f'; did you mean "{found[0]}"?' if found else f"; known are: {', '.join(names)}"
