#!/usr/bin/env python3
"""Makes a site of the pages that can be searched, in build/site: README.md, docs/, CONTRIBUTING.md, CHANGELOG.md and the files that they link.

    scripts/site.py [--pages-only]

mkdocs builds it: the system's, or one that is installed once into build/site-tools from the package index. Where there is neither, a sentence says
what to install. Pages are copied to build/site-pages, with links that hold there: a linked source file becomes a page, a folder a list of its
files. A link to a page or a part of a page that is not there is an error. With --pages-only the pages are copied and checked, and no site is built.
The site needs no network, and can be opened as files.
"""
import argparse
import html
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES, SITE, TOOLS = ROOT / "build/site-pages", ROOT / "build/site", ROOT / "build/site-tools"
CODE = {".c": "c", ".h": "c", ".cpp": "cpp", ".cu": "c", ".cuh": "c", ".py": "python", ".sh": "sh", ".cell": "", ".txt": "", ".json": None, "": ""}
# Pages that have another name on the site.
NAMES = {"README.md": "index.md", "docs/README.md": "pages.md", "docs/recurve.1": "recurve.1.md"}

STYLE = """.wy-nav-content { max-width: 1000px }
.rst-content table.docutils, .rst-content table { display: block; overflow-x: auto; max-width: 100%; border: 0 }
.rst-content table td, .rst-content table th { white-space: normal; min-width: 6em; padding: 4px 10px; vertical-align: top; text-align: left }
@media (max-width: 768px) { .rst-content table td, .rst-content table th { padding: 3px 6px; font-size: 14px; min-width: 5em } }
.rst-content code { white-space: pre-wrap; overflow-wrap: anywhere }
.rst-content pre code { white-space: pre }
"""

# The end of mkdocs' search/main.js, for pages that are opened as files: there a browser starts no worker and reads no JSON.
SEARCH_MARK = "if (!window.Worker) {\n  console.log"
SEARCH_END = """
window.Worker = undefined;
var min_search_length = 2, documents = {}, index;
function search(query) {
  return index.search(query).map(function (result) {
    var found = documents[result.ref];
    return {location: found.location, title: found.shown, summary: found.text.substring(0, 200)};
  });
}
function addScript(name, next) {
  var script = document.createElement('script');
  script.src = joinUrl(base_url, 'search/' + name);
  script.onload = next;
  document.head.appendChild(script);
}
if (document.getElementById('mkdocs-search-query')) {
  addScript('lunr.js', function () {
    addScript('search_index.js', function () {
      index = lunr(function () {
        this.field('title');
        this.field('text');
        this.ref('location');
        for (var i = 0; i < searchIndex.docs.length; i++) {
          this.add(searchIndex.docs[i]);
          documents[searchIndex.docs[i].location] = searchIndex.docs[i];
        }
      });
      for (var location in documents) { // a part of a page is shown with the page's title
        var page = documents[location.split('#')[0]], part = documents[location];
        part.shown = page && page !== part && page.title !== part.title ? page.title + ': ' + part.title : part.title;
      }
      initSearch();
    });
  });
}
"""

LINK = re.compile(r"(\]\()([^()\s]+)(\))|(src=\")([^\"]+)(\")")
CODE_WITH_BAR = re.compile(r"`([^`]*\\\|[^`]*)`")  # in a table; mkdocs would show the backslash
PICTURE = re.compile(r"<picture>.*?(<img [^>]*>).*?</picture>", re.DOTALL)


class Pages:
    """The pages of the site. A file is copied once, when a link to it is found."""

    def __init__(self) -> None:
        self.waiting: list[Path] = []  # files of the repository whose pages are still to be written
        self.known: dict[Path, str] = {}  # file of the repository -> its name on the site
        self.wrong: list[str] = []

    def add(self, path: Path) -> str:
        """The name on the site of a file or folder of the repository."""
        if path not in self.known:
            relative = path.relative_to(ROOT).as_posix()
            name = NAMES.get(relative) or relative.removeprefix("docs/")
            if path.is_dir():
                name = f"files/{relative}/index.md"
            elif path.suffix != ".md" and name == relative:
                is_page = CODE.get(path.suffix) is not None
                name = f"files/{relative}" + (".md" if is_page else "")
            self.known[path] = name
            self.waiting.append(path)
        return self.known[path]

    def link(self, page: Path, target: str) -> str:
        """A link of `page` as it is on the site."""
        path, _, part = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return target
        linked = Path(os.path.normpath(page.parent / path))
        if not linked.exists() or ROOT not in [linked, *linked.parents]:
            self.wrong.append(f"{page.relative_to(ROOT)}: the linked {target} is not there")
            return target
        if part and linked.suffix == ".md" and part not in anchors_of(linked):
            self.wrong.append(f"{page.relative_to(ROOT)}: {path} has no part #{part}")
        name = os.path.relpath(self.add(linked), Path(self.known[page]).parent)
        return name + (f"#{part}" if part else "")

    def rewrite(self, page: Path) -> str:
        """The text of a page, with its links as they are on the site; blocks of code stay as they are."""
        lines, in_code = [], False
        text = PICTURE.sub(r"\1", page.read_text(encoding="utf-8"))  # the site is light
        for line in text.split("\n"):
            if line.startswith("```"):
                in_code = not in_code
                line = line.replace("```sh numpy", "```sh").replace("```python torch", "```python")
            if not in_code:
                line = CODE_WITH_BAR.sub(lambda m: "<code>" + html.escape(m[1], quote=False).replace("\\|", "&#124;") + "</code>", line)
                line = LINK.sub(lambda m: (m[1] or m[4]) + self.link(page, m[2] or m[5]) + (m[3] or m[6]), line)
            lines.append(line)
        return "\n".join(space_lists(lines))

    def write(self, path: Path) -> None:
        target = PAGES / self.known[path]
        target.parent.mkdir(parents=True, exist_ok=True)
        relative = path.relative_to(ROOT).as_posix()
        if path.is_dir():
            listed = sorted(p for p in path.iterdir() if p.is_file() and CODE.get(p.suffix, "") is not None and not p.name.startswith("."))
            listed += sorted(p for p in path.iterdir() if p.suffix == ".json")
            names = [f"- [{p.name}]({os.path.relpath(self.add(p), target.parent.relative_to(PAGES))})" for p in listed]
            target.write_text(f"# {relative}\n\n" + "\n".join(names) + "\n", encoding="utf-8")
        elif path.suffix == ".md":
            target.write_text(self.rewrite(path), encoding="utf-8")
        elif relative == "docs/recurve.1":
            target.write_text("# Manual of the command\n\n```text\n" + format_manual(path) + "\n```\n", encoding="utf-8")
        elif target.suffix == ".md":
            target.write_text(f"# {relative}\n\n```{CODE[path.suffix]}\n{path.read_text(encoding='utf-8')}```\n", encoding="utf-8")
        else:
            shutil.copyfile(path, target)


def anchors_of(page: Path) -> set[str]:
    """The parts of a page that a link can name, as GitHub and mkdocs call them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def space_lists(lines: list[str]) -> list[str]:
    """GitHub begins a list or a table after a line of text; mkdocs needs an empty line between."""
    spaced, in_code = [], False
    for line in lines:
        if line.startswith("```"):
            in_code = not in_code
        before = spaced[-1] if spaced else ""
        begins = re.match(r"([-*] |\d+\. |\|)", line)
        if begins and not in_code and before and not re.match(r"\s*([-*] |\d+\. |\|)|\s", before):
            spaced.append("")
        spaced.append(line)
    return spaced


def format_manual(path: Path) -> str:
    """The manual page as text."""
    for command in (["mandoc", "-T", "utf8", str(path)], ["man", "-l", str(path)], ["groff", "-man", "-Tutf8", str(path)]):
        if shutil.which(command[0]):
            run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "90", "MANPAGER": "cat", "GROFF_NO_SGR": "1"}, check=False)
            if run.returncode == 0 and run.stdout.strip():
                return re.sub(r".\x08|\x1b\[[0-9;]*m", "", run.stdout).strip("\n")
    return path.read_text(encoding="utf-8")


def write_pages() -> list[str]:
    """Copies all pages; what is wrong with their links."""
    shutil.rmtree(PAGES, ignore_errors=True)
    pages = Pages()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "docs/recurve.1", *sorted((ROOT / "docs").rglob("*.md"))]:
        pages.add(path)
    while pages.waiting:
        pages.write(pages.waiting.pop())
    (PAGES / "site.css").write_text(STYLE, encoding="utf-8")
    return pages.wrong


def find_mkdocs() -> str | None:
    """The system's mkdocs, or one in build/site-tools."""
    own = TOOLS / "bin/mkdocs"
    if own.exists() or shutil.which("mkdocs"):
        return str(own) if own.exists() else shutil.which("mkdocs")
    try:
        venv.create(TOOLS, with_pip=True)
        subprocess.run([TOOLS / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "mkdocs"], check=True)
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(TOOLS, ignore_errors=True)
        return None
    return str(own)


def let_files_search() -> None:
    """Changes the search of the site so that it works in pages that are opened as files."""
    folder = SITE / "search"
    script = (folder / "main.js").read_text(encoding="utf-8")
    if SEARCH_MARK not in script:
        print("site.py: this mkdocs has another search script; the search works on a server alone", file=sys.stderr)
        return
    (folder / "main.js").write_text(script[:script.index(SEARCH_MARK)] + SEARCH_END, encoding="utf-8")
    (folder / "search_index.js").write_text("var searchIndex = " + (folder / "search_index.json").read_text(encoding="utf-8") + ";\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages-only", action="store_true", help="check the links, and build nothing")
    options = parser.parse_args()
    if wrong := write_pages():
        print("\n".join(wrong), file=sys.stderr)
        return 1
    if options.pages_only:
        return 0
    mkdocs = find_mkdocs()
    if not mkdocs:
        print("docs: mkdocs builds the site, and it is not here: install it (apt-get install mkdocs, or pip install mkdocs), then run make docs", file=sys.stderr)
        return 1
    run = subprocess.run([mkdocs, "build", "--strict", "--quiet", "--clean", "--config-file", ROOT / "docs/mkdocs.yml"], check=False)
    if run.returncode != 0:
        return 1
    let_files_search()
    print(f"the site is {SITE.relative_to(ROOT)}/index.html; python3 -m http.server -d {SITE.relative_to(ROOT)} serves it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
