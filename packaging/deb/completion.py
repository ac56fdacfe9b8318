"""Writes the files that complete `yurt` in bash, zsh and fish below a root: python packaging/deb/completion.py ROOT."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

PROGRAM: Final = "/usr/bin/yurt"
FILES: Final = {
    "usr/share/bash-completion/completions/yurt": f"complete -C {PROGRAM} yurt\n",
    "usr/share/zsh/vendor-completions/_yurt": (
        f"#compdef yurt\nautoload -U +X bashcompinit && bashcompinit\ncomplete -C {PROGRAM} yurt\n"
        f"_bash_complete -C {PROGRAM}\n"  # zsh reads this file when it is first needed: this is the answer of that time
    ),
    "usr/share/fish/vendor_completions.d/yurt.fish": (
        "function __complete_yurt\n"
        "    set -lx COMP_LINE (commandline -cp)\n"
        "    test -z (commandline -ct)\n"
        '    and set COMP_LINE "$COMP_LINE "\n'
        f"    {PROGRAM}\n"
        "end\n"
        'complete -f -c yurt -a "(__complete_yurt)"\n'
    ),
}

if __name__ == "__main__":
    for name, text in FILES.items():
        path = Path(sys.argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
