"""Shows the `Example:` of a docstring as code: mkdocstrings knows that section as `Examples:`."""

import re
from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Renames the heading before docstrings are parsed; the line numbers stay."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each object, once it is loaded."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
