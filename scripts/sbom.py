"""Writes a software bill of materials in the CycloneDX format: `make sbom`.

It lists what an installed Siteatlas consists of: the locked packages, the PostgreSQL inside one of
them, and the files of other projects that the dashboard serves. Nothing is looked up elsewhere.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from siteatlas.storage.embedded.files import DISTRIBUTION, installed_programs

PROJECT = Path(__file__).resolve().parent.parent
LOCK = PROJECT / "requirements.lock"
VENDOR = PROJECT / "src" / "siteatlas" / "web" / "static" / "vendor" / "VENDOR.md"
REQUIREMENT = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<rest>(?:.*\\\n)*.*)$", re.MULTILINE
)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
VENDORED = re.compile(
    r"^## (?P<name>\S+) (?P<version>\S+)\n\nLicence: (?P<license>[^(]+) \(", re.MULTILINE
)


def main(target: str = "") -> None:
    """Write the document to a file, or to stdout."""
    text = json.dumps(document(), indent=2) + "\n"
    if target:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def document() -> dict[str, Any]:
    """The bill of materials; the same inputs give the same document."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    components = [*locked_packages(), embedded_server(), *vendored_files()]
    digest = hashlib.sha256(json.dumps(components).encode()).digest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "siteatlas",
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": "siteatlas", "dependsOn": sorted(part["bom-ref"] for part in components)}
        ],
    }


def locked_packages() -> Iterator[dict[str, Any]]:
    """The packages of the lock file, with the hashes of all files that it accepts."""
    for match in REQUIREMENT.finditer(LOCK.read_text(encoding="utf-8")):
        name, version = match["name"], match["version"]
        purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
        package: dict[str, Any] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": h} for h in HASH.findall(match["rest"])],
        }
        yield package | license_of(name)


def license_of(name: str) -> dict[str, Any]:
    """The license that an installed package declares; nothing if it is not installed here."""
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return {}
    if expression := about.get("License-Expression"):
        return {"licenses": [{"expression": expression}]}
    classifiers = about.get_all("Classifier") or ()
    named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    declared = (about.get("License") or "").strip()
    if not named and declared and "\n" not in declared:
        named = [declared]
    return {"licenses": [{"license": {"name": text}} for text in named]} if named else {}


def embedded_server() -> dict[str, Any]:
    """The PostgreSQL that a locked package contains."""
    version = installed_programs().version()
    return {
        "type": "application",
        "bom-ref": f"postgresql@{version}",
        "name": "postgresql",
        "version": version,
        "description": f"The embedded server, part of {DISTRIBUTION}.",
        "cpe": f"cpe:2.3:a:postgresql:postgresql:{version}:*:*:*:*:*:*:*",
        "licenses": [{"license": {"id": "PostgreSQL"}}],
    }


def vendored_files() -> Iterator[dict[str, Any]]:
    """The projects whose files are part of the dashboard."""
    for match in VENDORED.finditer(VENDOR.read_text(encoding="utf-8")):
        purl = f"pkg:npm/{match['name']}@{match['version']}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": match["name"],
            "version": match["version"],
            "purl": purl,
            "licenses": [{"license": {"name": match["license"]}}],
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
