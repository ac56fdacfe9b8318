"""The client's `options`: which drivers and which fingerprints a node has, and options that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from yurt.sdk.value import Value

DRIVER, FINGERPRINT = "driver", "fingerprint"
KNOWN: Final = frozenset({
    "driver.allowlist", "driver.denylist", "driver.docker.volumes", "driver.raw_exec.enable", "env.denylist",
    "ephemeral_disk.over_size", "fingerprint.allowlist", "fingerprint.denylist", "plugin.env.allowlist",
    "plugin.mtls", "user.checked_drivers", "user.denylist",
})  # fmt: skip
"""Options of the client and of the plugins that come with it."""
OLD_NAMES: Final = {
    "driver.allowlist": "driver.whitelist", "driver.denylist": "driver.blacklist", "env.denylist": "env.blacklist",
    "fingerprint.allowlist": "fingerprint.whitelist", "fingerprint.denylist": "fingerprint.blacklist",
    "user.denylist": "user.blacklist",
}  # fmt: skip
"""Spellings that count where the new one is not given."""
CUTOFF: Final = 0.6


class NameFilter(Value):
    """Names that may be used: all but the denied, and where some are allowed by name, only those."""

    kind: str
    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    def refusal(self, name: str) -> str:
        """Why a name may not be used; "" when it may."""
        if name in self.denied:
            return f"client.options {self.kind}.denylist names it"
        if self.allowed is not None and name not in self.allowed:
            return f"client.options {self.kind}.allowlist does not name it"
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        """All that are named."""
        return (*(self.allowed or ()), *self.denied)


def choice_of(kind: str, options: Mapping[str, str]) -> NameFilter:
    """What the options say of drivers or fingerprints; an empty list says nothing."""
    allowed = words(option(options, f"{kind}.allowlist"))
    return NameFilter(kind=kind, allowed=allowed or None, denied=words(option(options, f"{kind}.denylist")))


def option(options: Mapping[str, str], name: str) -> str:
    """An option by its name or its old one."""
    return options.get(name) or options.get(OLD_NAMES.get(name, name)) or ""


def words(text: str) -> tuple[str, ...]:
    """`"a, b"` as its words."""
    return tuple(filter(None, (word.strip() for word in text.split(","))))


class RecordedOptions(Mapping[str, str]):
    """The options as plugins see them; remembers which were asked for, for plugins have options of their own."""

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
    """Which drivers an agent uses, and afterwards what the options name to no effect."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = RecordedOptions(options)
        self._given = options
        self._choice = choice_of(DRIVER, options)
        self._drivers: set[str] = set()

    def refusal(self, name: str) -> str:
        """Why a driver that there is may not be used; "" when it may."""
        self._drivers.add(name)
        return self._choice.refusal(name)

    def warnings(self, fingerprints: Iterable[str]) -> list[str]:
        """Options that nobody knows or asked for, and names in lists that nothing has; for after plugins were made."""
        known = KNOWN | frozenset(OLD_NAMES.values())
        found = [
            f'client.options "{name}" has no effect: there is no such option{_near(name, known)}'
            for name in sorted(set(self._given) - known - self.options.asked)
        ]
        for kind, names in ((DRIVER, frozenset(self._drivers)), (FINGERPRINT, frozenset(fingerprints))):
            found += [
                f'client.options {kind} lists name "{name}", and there is no such {kind}{_near(name, names)}'
                for name in dict.fromkeys(choice_of(kind, self._given).names)
                if name not in names
            ]
        return found


def _near(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    found = get_close_matches(name, names, n=1, cutoff=CUTOFF)
    return f'; did you mean "{found[0]}"?' if found else f"; known are: {', '.join(names)}"
