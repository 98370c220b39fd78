"""Put a bill of materials into the wheel: CycloneDX, in ``.dist-info/sboms`` (PEP 770)."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BillOfMaterials(BuildHookInterface):
    """
    Lists the package and what it declares to need; nothing of others is inside the wheel.

    The same source and the same ``SOURCE_DATE_EPOCH`` give the same bytes.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the bill, and name it to the builder."""
        path = Path(self.directory) / f"{self.metadata.core.name}.cdx.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._bill(), indent=2) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(path))

    def finalize(
        self, version: str, build_data: dict[str, Any], artifact_path: str
    ) -> None:
        """Remove the file: the wheel has it now."""
        for name in build_data["sbom_files"]:
            Path(name).unlink()

    def _bill(self) -> dict[str, Any]:
        core = self.metadata.core
        whole = f"pkg:pypi/{core.name}@{self.metadata.version}"
        needed = {_purl(each): "required" for each in core.dependencies}
        extras = [
            each for extra in core.optional_dependencies.values() for each in extra
        ]
        scopes = {_purl(each): "optional" for each in extras} | needed
        metadata: dict[str, Any] = {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library", "bom-ref": whole, "name": core.name, "version": self.metadata.version,
                "purl": whole, "licenses": [{"license": {"id": core.license_expression}}],
            },
        }  # fmt: skip
        if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
            metadata["timestamp"] = datetime.fromtimestamp(int(epoch), UTC).isoformat()
        return {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, whole)}",
            "version": 1,
            "metadata": metadata,
            "components": [
                {
                    "type": "library",
                    "bom-ref": purl,
                    "name": purl.rpartition("/")[2],
                    "purl": purl,
                    "scope": scope,
                }
                for purl, scope in sorted(scopes.items())
            ],
            "dependencies": [
                {"ref": whole, "dependsOn": sorted(scopes)},
                *({"ref": purl} for purl in sorted(scopes)),
            ],
        }


def _purl(requirement: str) -> str:
    """Return the package URL of a requirement, without the version, which the installer chooses."""
    name = re.match(r"[\w.-]+", requirement)
    assert name
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name[0]).lower()}"
