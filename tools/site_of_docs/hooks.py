"""What mkdocs does beside its own work when it builds the site: see mkdocs.yml.

Pages are written for people who read them in the repository. So they link to files outside docs/, have formulas
between dollars, and images as files. Here the first become pages or plain words, formulas become MathML, which
browsers draw without any script, and drawings are put into the page, so that they follow its light or dark colours.
The reports of the paper's evaluations are built from results/.
"""

from __future__ import annotations

import os
import re
import shutil
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
REPORTS = ROOT / "build" / "reports"  # kept between builds, not committed
# Pages of the repository that are part of the site, and what they are called there.
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "results/README.md": "measured.md",
    "src/tasso/models/nano/README.md": "nano.md",
}
# The README says what the home page says.
INSTEAD = {"README.md": "index.md", **OUTSIDE}

# A report has two pages: index.md, and index.html with a script of its own. Both would be index.html in the site.
WHOLE, RENAMED = "index.html", "page.html"

FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
LINK = re.compile(r"\[(?P<words>[^\]]*)\]\((?P<target>[^)\s]+)\)")
LISTED = "<!-- reports -->"  # becomes a line of links
MARKER = re.compile(r"^<!-- .*? -->$", re.M)
# A list or table right below a line of text: GitHub starts it there, Python-Markdown needs an empty line.
CROWDED = re.compile(r"^(?![-*|>#\s]|\d+\. )(.+\n)(?=[-*] |1\. |\|)", re.M)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
DRAWING = re.compile(r'<img alt="(?P<alt>[^"]*)" src="(?P<src>[^"]*figures/[\w-]+\.svg)" ?/?>')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and the reports."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    if Path(config.docs_dir) == DOCS:
        for name, folder in build_reports().items():
            for path in sorted(folder.rglob("*.*")):
                page = path.with_name(RENAMED) if path.name == WHOLE else path
                uri = f"results/{name}/{page.relative_to(folder).as_posix()}"
                files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def build_reports() -> dict[str, Path]:
    """Write the report of every evaluation in results/ that has changed since the last build; folders by name."""
    from tasso.report.paper.evaluation import read_evaluation
    from tasso.report.paper.report import write_evaluation

    code = max(path.stat().st_mtime for path in (ROOT / "src" / "tasso").rglob("*.*") if path.suffix != ".pyc")
    folders = {}
    for record in sorted(RESULTS.glob("paper-*.json")):
        study = next(RESULTS.glob(f"{record.stem}.csv*"))
        folder = folders[record.stem.removeprefix("paper-")] = REPORTS / record.stem
        last = folder / "index.md"  # written last
        if not last.is_file() or last.stat().st_mtime < max(code, record.stat().st_mtime, study.stat().st_mtime):
            shutil.rmtree(folder, ignore_errors=True)
            evaluation = read_evaluation(study)
            write_evaluation(evaluation, folder, evaluation.complete_plans())
    return folders


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead to where the site has the page; code is left alone."""
    docs = Path(config.docs_dir)
    source = Path(page.file.abs_src_path or docs)
    if LISTED in markdown:
        reports = [file.src_uri for file in files if re.fullmatch(r"results/[^/]+/index\.md", file.src_uri)]
        links = " · ".join(f"[{Path(uri).parent.name}]({os.path.relpath(uri, 'results')})" for uri in reports)
        markdown = markdown.replace(LISTED, f"**Reports: {links}.**\n")
    parts = FENCED.split(markdown)
    parts[::2] = [with_site_links(spaced(part), source, page.file.src_uri, docs) for part in parts[::2]]
    return "".join(parts)


def spaced(text: str) -> str:
    """Add empty lines above lists and tables, and remove the markers of generated tables."""
    return CROWDED.sub(r"\1\n", MARKER.sub("", text))


def with_site_links(text: str, source: Path, uri: str, docs: Path = DOCS) -> str:
    """The text of the page at `source`, which is `uri` in the site, with links rewritten for the site."""

    def follow(link: re.Match[str]) -> str:
        words, target = link["words"], link["target"]
        path, hash_sign, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return link[0]
        place = (source.parent / path).resolve()
        if source.is_relative_to(REPORTS):  # a report links to its own files only
            return link[0].replace(WHOLE, RENAMED)
        if place.is_relative_to(docs):
            if source.is_relative_to(docs):
                return link[0]
            found: str | None = place.relative_to(docs).as_posix()
        elif place.is_relative_to(ROOT):
            found = INSTEAD.get(place.relative_to(ROOT).as_posix())
        else:
            raise PluginError(f"{uri}: {target} leads out of the repository")
        if found is None:  # a file that is not part of the site: show its path
            name = place.relative_to(ROOT).as_posix()
            return f"`{name}`" if words.strip("`") == name else f"{words} (`{name}`)"
        return f"[{words}]({os.path.relpath(found, Path(uri).parent)}{hash_sign}{anchor})"

    return LINK.sub(follow, text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert formulas and figures."""
    html = FORMULA.sub(lambda found: formula(found[2], found[1] == "div", page.file.src_uri), html)
    return DRAWING.sub(lambda found: drawing(found["alt"], Path(page.file.src_uri).parent / found["src"]), html)


def formula(text: str, block: bool, where: str) -> str:
    """TeX as MathML. A command that the converter does not know ends the build."""
    tex = unescape(text).strip()
    mathml: str = convert(tex, display="block" if block else "inline")
    if unknown := re.search(r">(\\[A-Za-z]+)", mathml):
        raise PluginError(f"{where}: no MathML for {unknown[1]} in {tex}")
    return f'<div class="formula">{mathml}</div>' if block else mathml


def drawing(alt: str, uri: Path) -> str:
    """A figure as part of the page: its dark colours belong to the site's dark scheme, not to the system's."""
    svg = (DOCS / os.path.normpath(uri)).read_text(encoding="utf-8")
    name = uri.stem
    svg = re.sub(r"<svg ", f'<svg id="drawing-{name}" aria-hidden="true" ', svg, count=1)
    svg = svg.replace("@media (prefers-color-scheme: dark)", f"[data-md-color-scheme=slate] #drawing-{name}")
    return f'<figure class="drawing" role="img" aria-label="{alt}">{svg}</figure>'
