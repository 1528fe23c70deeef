"""Tables that a reader of the page can save as files."""

from __future__ import annotations

from tasso.report.formats import to_csv, to_latex
from tasso.report.markup import Html, data, element
from tasso.report.tables import Table

FORMATS = {"csv": "CSV", "tex": "LaTeX"}


class Downloads:
    """Collects the tables of a page as text; the script makes files of it when it is asked to."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, str]] = {}

    def add(self, table: Table, name: str) -> Html:
        """Keep the table under this name; returns its buttons. They need the script, which takes `hidden` away."""
        if name in self.files:
            raise ValueError(f"two tables named {name!r} on one page")
        self.files[name] = {"csv": to_csv(table), "tex": to_latex(table)}
        buttons = [
            element(
                "button", words, type="button", class_="save", data_save=name, data_kind=kind,
                aria_label=f"Download as {words}: {table.title}",
            )
            for kind, words in FORMATS.items()
        ]  # fmt: skip
        return element("p", element("span", "Download", class_="count"), *buttons, class_="saves", hidden=True)

    def content(self) -> Html:
        """The texts themselves, for the end of the page."""
        return data("files", self.files)
