"""`make sbom`: a bill of materials that names everything that is installed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The bill of materials."""
    script = Path(__file__).parents[2] / "scripts" / "sbom.py"
    made: dict[str, Any] = runpy.run_path(str(script))["document"]()
    return made


def test_every_locked_package_is_listed_with_its_hashes(document: dict[str, Any], project: Path):
    lock = (project / "requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    packages = {
        (part["name"], part["version"]): part
        for part in document["components"]
        if part.get("purl", "").startswith("pkg:pypi/")
    }
    assert len(locked) > 40
    assert set(packages) == set(locked)
    hashes = sum(len(part["hashes"]) for part in packages.values())
    assert hashes == lock.count("--hash=sha256:")


def test_what_is_inside_of_packages_is_listed_too(document: dict[str, Any]):
    names = {part["name"] for part in document["components"]}
    assert {"postgresql", "swagger-ui-dist", "htmx.org"} <= names
    assert "lxml" in names


def test_it_is_a_cyclonedx_document_in_which_references_are_unique(document: dict[str, Any]):
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    references = [part["bom-ref"] for part in document["components"]]
    assert len(set(references)) == len(references)
    assert document["dependencies"][0]["dependsOn"] == sorted(references)
