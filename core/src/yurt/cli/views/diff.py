"""The difference between two versions of a job, as `job plan` and `job history -p` print it.

Every object has a marker: `+` added, `-` removed, `+/-` edited. Markers of one level are padded to one width, so that
names stand below each other. A group that is printed lists all its tasks, unchanged ones without a marker. Inside an
edited object the unchanged fields are printed too, without a marker.
"""

from __future__ import annotations

from yurt.cli.json_object import Json
from yurt.cli.terminal.screen import Screen

_MARKERS = {"Added": ("+", "green"), "Deleted": ("-", "red"), "Edited": ("+/-", "yellow"), "None": ("", "")}
_UPDATE_STYLES = {
    "create": "green", "destroy": "red", "migrate": "cyan", "canary": "cyan", "in-place update": "cyan",
    "create/destroy update": "yellow", "ignore": "", "preemptions": "red", "ignored": "",
}  # fmt: skip


class DiffPrinter:
    """Makes the lines of a diff."""

    def __init__(self, screen: Screen, *, verbose: bool = False) -> None:
        self.screen = screen
        self.verbose = verbose

    def job(self, diff: Json) -> str:
        """The whole diff."""
        edited = diff.get("Type") == "Edited"
        lines = [f'{self._marker(diff)}{self.screen.style("Job:", "bold")} "{diff.get("ID") or ""}"']
        if edited or self.verbose:
            lines += self._body(diff, 0)
        for group in diff.get("TaskGroups") or ():
            if group.get("Type") != "None" or self.verbose or group.get("Updates"):
                lines += self._group(group)
        return "\n".join(line.rstrip() for line in lines)

    def _group(self, group: Json) -> list[str]:
        updates = ", ".join(
            self._update(name, count) for name, count in sorted((group.get("Updates") or {}).items()) if count
        )
        extra = f" ({updates})" if updates else ""
        lines = [f'{self._marker(group)}{self.screen.style("Task Group:", "bold")} "{group.get("Name") or ""}"{extra}']
        tasks = group.get("Tasks") or []
        is_whole = group.get("Type") == "Edited" or self.verbose
        fields, objects = (group.get("Fields") or [], group.get("Objects") or []) if is_whole else ([], [])
        width = self._marker_width([*fields, *self._shown(objects), *tasks])
        lines += self._entries(fields, objects, 2, width)
        for task in tasks:
            lines += self._task(task, width)
        return lines

    def _task(self, task: Json, marker_width: int) -> list[str]:
        notes = [self.screen.style(note, *self._note_style(note)) for note in task.get("Annotations") or ()]
        extra = f" ({', '.join(notes)})" if notes else ""
        start = f"  {self._padded(task.get('Type') or 'None', marker_width)}"
        lines = [f'{start}{self.screen.style("Task:", "bold")} "{task.get("Name") or ""}"{extra}']
        if task.get("Type") == "Edited" or self.verbose:
            lines += self._body(task, 4)
        return lines

    def _body(self, diff: Json, indent: int) -> list[str]:
        """Fields and objects of a job, a task or a block."""
        fields, objects = diff.get("Fields") or [], diff.get("Objects") or []
        return self._entries(fields, objects, indent, self._marker_width([*fields, *self._shown(objects)]))

    def _shown(self, objects: list[Json]) -> list[Json]:
        return [each for each in objects if each.get("Type") != "None" or self.verbose]

    @staticmethod
    def _marker_width(entries: list[Json]) -> int:
        """The width of the widest marker of one level."""
        return max((len(_MARKERS[each.get("Type") or "None"][0]) for each in entries), default=0)

    def _entries(self, fields: list[Json], objects: list[Json], indent: int, marker_width: int) -> list[str]:
        shown = self._shown(objects)
        name_width = max((len(each["Name"]) for each in fields), default=0)
        lines = [self._field(each, indent, marker_width, name_width) for each in fields]
        for each in shown:
            lines += self._object(each, indent, marker_width)
        return lines

    def _field(self, field: Json, indent: int, marker_width: int, name_width: int) -> str:
        kind = field.get("Type") or "None"
        old, new = field.get("Old") or "", field.get("New") or ""
        value = {"Added": f'"{new}"', "Deleted": f'"{old}"', "Edited": f'"{old}" => "{new}"'}.get(kind, f'"{new}"')
        notes = field.get("Annotations") or []
        extra = f" ({', '.join(notes)})" if notes else ""
        padding = " " * (name_width - len(field["Name"]))
        return f"{' ' * indent}{self._padded(kind, marker_width)}{field['Name']}: {padding}{value}{extra}"

    def _object(self, diff: Json, indent: int, marker_width: int) -> list[str]:
        kind = diff.get("Type") or "None"
        start = f"{' ' * indent}{self._padded(kind, marker_width)}{diff['Name']} {{"
        padding = max(marker_width - len(_MARKERS[kind][0]), 0)
        lines = self._body(diff, indent + 2 + padding)
        return [start, *lines, " " * (indent + (marker_width + 1 if marker_width else 0)) + "}"]

    def _padded(self, kind: str, width: int) -> str:
        if not width:
            return ""
        marker, style = _MARKERS[kind]
        padding = " " * (width - len(marker) + 1)
        return (self.screen.style(marker, style) if marker else "") + padding

    def _marker(self, diff: Json) -> str:
        marker, style = _MARKERS[diff.get("Type") or "None"]
        return f"{self.screen.style(marker, style)} " if marker else ""

    def _update(self, name: str, count: int) -> str:
        style = _UPDATE_STYLES.get(name, "")
        text = f"{count} {name}"
        return self.screen.style(text, style) if style else text

    @staticmethod
    def _note_style(note: str) -> tuple[str, ...]:
        words = {"forces create": "green", "forces destroy": "red", "forces in-place update": "cyan"}
        style = words.get(note, "yellow" if "create/destroy" in note else "")
        return (style,) if style else ()
