"""Metadata hook for hatchling: the project's addresses, and a README whose links work on a package index.

The addresses come from the environment, as those of the site do: `REPOSITORY_URL` and `SITE_URL`. Without
`REPOSITORY_URL`, the package has no addresses, and the README keeps its relative links.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Addresses(MetadataHookInterface):
    """Sets the fields `urls` and `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields."""
        repository, site = os.environ.get("REPOSITORY_URL"), os.environ.get("SITE_URL")
        addresses = {"Repository": repository, "Documentation": site}
        metadata["urls"] = {name: address for name, address in addresses.items() if address}
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository:
            for before, folder in [(r"(!\[[^\]]*\])", "raw"), (r"(\])", "blob")]:
                text = re.sub(before + r"\((?!https?:|#)", rf"\1({repository}/{folder}/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
