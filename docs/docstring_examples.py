"""Render `Example:` sections of docstrings as code; griffe recognises only `Examples:`."""

import re
from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Renames the section before griffe parses docstrings, without changing line numbers."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section in the docstring of a loaded object."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
