"""A picture of a page has a second one for dark mode: ``NAME-dark.png`` beside ``NAME.png``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

BEFORE_COLLECTION = 100  # Sphinx collects images in the same event, at 500


def add_dark_pictures(_app: Sphinx, doctree: nodes.document) -> None:
    """Show the dark picture in dark mode, by the theme's own classes."""
    for image in [*doctree.findall(nodes.image)]:
        if "page" not in image["classes"]:
            continue
        dark = image.deepcopy()
        dark["uri"] = image["uri"].replace(".png", "-dark.png")
        image["classes"].append("only-light")
        dark["classes"].append("only-dark")
        image.parent.insert(image.parent.index(image) + 1, dark)
        for each in (image, dark):
            each["loading"] = "lazy"  # so that the one that is not shown is not loaded


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hook."""
    app.connect("doctree-read", add_dark_pictures, priority=BEFORE_COLLECTION)
    return {"parallel_read_safe": True}
