"""Metadata hook for hatchling: makes the README's links absolute, so that they work on a package index."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AbsoluteLinks(MetadataHookInterface):
    """Replaces the README's relative links by addresses in the repository given in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        for before, folder in [(r"(!\[[^\]]*\])", "raw"), (r"(\])", "blob")]:
            address = f"{metadata['urls']['Repository']}/{folder}/main/"
            text = re.sub(before + r"\((?!https?:|#)", rf"\1({address}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
