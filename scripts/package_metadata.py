"""What a build adds to the package's metadata: the description, and the project's pages where their address is known.

The links of README.md are relative, as a clone needs them. On the package index no relative link
works: a build with ``RGT_HOMEPAGE``, the address of the repository, makes them absolute and names
    the pages.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

HOMEPAGE_ENV = "RGT_HOMEPAGE"
LINK = re.compile(r"(!?)(\[[^\]]*\]\()(?![a-z]+:|#)([^)\s]+\))")
PAGES = {
    "Homepage": "",
    "Documentation": "/blob/main/docs/README.md",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}


def absolute(text: str, homepage: str) -> str:
    """Return Markdown whose relative links lead into a repository: pictures to the file, all else to its page."""
    return LINK.sub(
        lambda link: f"{link[1]}{link[2]}{homepage}/{'raw' if link[1] else 'blob'}/main/{link[3]}",
        text,
    )


class PackageMetadata(MetadataHookInterface):
    """Called by hatchling for every build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the fields that pyproject.toml calls dynamic."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        homepage = os.environ.get(HOMEPAGE_ENV, "").rstrip("/")
        if homepage:
            text = absolute(text, homepage)
            metadata["urls"] = {name: homepage + path for name, path in PAGES.items()}
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
