"""Write the software bill of materials, dist/sbom.cdx.json: `make sbom`.

It is a CycloneDX document of what a server installs: the packages of requirements/server.txt with their hashes (extras
`kafka` and `onnx`), and the Rust crates of native/Cargo.lock, which are inside the compiled part. Packages of other
extras are not in it. It is checked by CycloneDX' schema.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[1]
OURS = "streamer-native"


def main() -> None:
    """Write the document to the path that the command line names; exits with 1 if it is not valid."""
    text = json.dumps(bill_of_materials(), indent=1)
    if (error := invalid(text)) is not None:
        sys.exit(f"the bill of materials is not valid: {error}")
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n", encoding="utf-8")
    print(f"{out}: {len(json.loads(text)['components'])} components")


def bill_of_materials() -> dict[str, Any]:
    """The document, with packages first and crates after them."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "sbom.json"
        wanted = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application", "--sv", "1.6"]
        wanted += ["--output-reproducible", "--of", "JSON", "--output-file", str(out)]
        lock = str(ROOT / "requirements" / "server.txt")
        # A lock file does not say which package needs which, so that the warning about it is no news.
        command = [sys.executable, "-W", "ignore::UserWarning", "-m", "cyclonedx_py", "requirements", *wanted, lock]
        subprocess.run(command, check=True, timeout=120)
        document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    document["components"] += crates((ROOT / "native" / "Cargo.lock").read_text(encoding="utf-8"))
    return document


def crates(lock: str) -> list[dict[str, Any]]:
    """The crates of a Cargo.lock but ours, as components."""
    listed = [crate for crate in tomllib.loads(lock)["package"] if crate["name"] != OURS]
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:cargo/{crate['name']}@{crate['version']}",
            "name": crate["name"],
            "version": crate["version"],
            "purl": f"pkg:cargo/{crate['name']}@{crate['version']}",
            "hashes": [{"alg": "SHA-256", "content": crate["checksum"]}],
        }
        for crate in listed
    ]


def invalid(text: str) -> str | None:
    """What CycloneDX' schema has against a document; `None` if it is valid."""
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return None if error is None else str(error)


if __name__ == "__main__":
    main()
