"""How to call this program, and the Python that runs it, from the user's shell: what is not on the PATH by its path."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

NAME: Final = "streamer"


def program() -> str:
    """This `streamer` as a shell in the working folder finds it.

    `streamer` if that is on the PATH and no other installation's; else its path, as `.venv/bin/streamer`; else
    `PYTHON -m streamer`.
    """
    script = _script()
    if script is None:
        return f"{python()} -m {NAME}"
    on_path = shutil.which(NAME)
    return NAME if on_path is not None and Path(on_path).samefile(script) else _shown(script)


def python() -> str:
    """The Python that runs this, as a shell in the working folder finds it: `python`, or its path."""
    on_path = shutil.which("python")
    # Not samefile: the Pythons of all environments are links to the same one.
    if on_path is not None and Path(on_path).absolute() == Path(sys.executable):
        return "python"
    return _shown(Path(sys.executable))


def _script() -> Path | None:
    """The file that was called, or that of the environment if it was called in another way."""
    suffix = ".exe" if os.name == "nt" else ""
    called = Path(sys.argv[0])
    for script in (called.with_suffix(suffix), Path(sysconfig.get_path("scripts"), NAME + suffix)):
        if script.name == NAME + suffix and script.is_file():
            return script.absolute()
    return None


def _shown(path: Path) -> str:
    here = Path.cwd()
    if path.is_relative_to(here):
        inside = str(path.relative_to(here))
        # Without a separator the shell would look on the PATH only.
        return shlex.quote(inside if os.sep in inside else f".{os.sep}{inside}")
    return shlex.quote(str(path))
