"""Called by hatchling when a distribution is built: the README, with links that work on a package index."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AbsoluteLinks(MetadataHookInterface):
    """Point the README's relative links and images to the repository that pyproject.toml names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the field `readme`."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        for before, folder in [(r"(!\[[^\]]*\])", "raw"), (r"(\])", "blob")]:
            address = f"{metadata['urls']['Repository']}/{folder}/main/"
            text = re.sub(before + r"\((?!https?:|#)", rf"\1({address}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
