"""Write the pictures anew: `PYTHONPATH=docs python -m drawn`, or only some: `... -m drawn camera-page`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from drawn import camerapage, demoscreen

FOLDER: Final = Path(__file__).parents[1] / "pictures"
PICTURES: Final[Mapping[str, Callable[[Path], list[Path]]]] = {
    "camera-page": camerapage.write,
    "demo": demoscreen.write,
}


def main() -> int:
    """Write the pictures that are named, by default all, and print their files."""
    names = sys.argv[1:] or list(PICTURES)
    for name in names:
        if name not in PICTURES:
            print(f"there is no picture {name!r}; there are {', '.join(PICTURES)}", file=sys.stderr)
            return 2
    for name in names:
        for file in PICTURES[name](FOLDER):
            print(f"{file} {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
