"""PyYAML's emitter with the form that job files get from Go: empty texts need no marker, nor do blocks that keep their
end of lines, and long lines in quotes break at a space without a backslash.
"""

from __future__ import annotations

from yaml.emitter import Emitter
from yaml.events import ScalarEvent


class YamlWriter(Emitter):
    """Writes events as text."""

    def check_empty_document(self) -> bool:
        return False

    def check_simple_key(self) -> bool:
        if isinstance(self.event, ScalarEvent) and not self.event.value:
            return True
        return bool(super().check_simple_key())

    def write_literal(self, text: str) -> None:
        super().write_literal(text)
        self.open_ended = False

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        self.write_indicator('"', True)
        is_after_space = False
        for at, char in enumerate(text):
            is_inner = 0 < at < len(text) - 1
            if char == " " and split and is_inner and not is_after_space and self.column > self.best_width:
                self.write_indent()
                if text[at + 1] == " ":
                    self._put("\\")
            else:
                self._put(self._escaped(char))
            is_after_space = char == " "
        self.write_indicator('"', False)

    def _put(self, text: str) -> None:
        self.stream.write(text)
        self.column += len(text)
        self.whitespace = self.indention = False

    def _escaped(self, char: str) -> str:
        if char in self.ESCAPE_REPLACEMENTS and char not in "\xa0/":
            return "\\" + self.ESCAPE_REPLACEMENTS[char]
        code = ord(char)
        is_shown = " " <= char <= "~" or "\xa0" <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd"
        if is_shown and char != "\ufeff":
            return char
        return f"\\x{code:02X}" if code <= 0xFF else f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"
