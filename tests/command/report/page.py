"""A page as a browser reads it: whole, well-formed, with nothing to fetch and no script. A test's own class says in `start` and `data`
what else it looks for; sentences go into `wrong`."""
import re
import sys
from html.parser import HTMLParser


def path_points(text):
    """The pieces of a path as lists of points: M x y, then l and moves from point to point, or h0 for a dot."""
    pieces = []
    for piece in re.findall("M([^M]*)", text):
        numbers = [[float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", part)] for part in re.split("[lhLz]", piece)]
        points = [tuple(numbers[0])]
        if "h" not in piece:
            moves = [n for part in numbers[1:] for n in part]
            for right, down in zip(moves[::2], moves[1::2]):
                points.append((points[-1][0] + right, points[-1][1] + down))
        pieces.append(points)
    return pieces


class Page(HTMLParser):
    CHILDLESS = ("meta", "link", "wbr", "input")

    def __init__(self, path):
        super().__init__()
        self.path, self.wrong = path, []
        self.open, self.classes, self.section, self.words = [], [], None, []
        with open(path, encoding="utf-8") as file:
            self.text = file.read()

    def start(self, tag, attributes):
        """Of every tag that opens, with a section's already in `section`."""

    def data(self, data):
        """Of every text."""

    def read(self):
        if re.search(r"https?:|src=|url\(|@import|<script|javascript:|\bon[a-z]+=", self.text):
            self.wrong.append("the page refers to something outside, or has a script")
        if re.search(r"\b(nan|inf)\b", self.shown()):
            self.wrong.append("the page shows what is no number")
        if "\x00" in self.text or not self.text.endswith("</html>\n"):
            self.wrong.append("the page is not whole")
        self.feed(self.text)
        if self.open:
            self.wrong.append("never closed: %s" % self.open)
        return self

    def shown(self):
        """In which no number is missing."""
        return self.text

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "section":
            self.section = attributes["id"]
        self.start(tag, attributes)
        if tag not in self.CHILDLESS:
            self.open.append(tag)
            self.classes.append((tag, attributes.get("class")))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()
            self.classes.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append("</%s> closes what is not open" % tag)
        self.classes = self.classes[:len(self.open)]

    def handle_data(self, data):
        self.words.append(data.strip())
        self.data(data)

    def report(self):
        for sentence in self.wrong[:10]:
            print("FAILED: %s: %s" % (self.path, sentence))
        sys.exit(bool(self.wrong))


class ReportPage(Page):
    """A page of recurve report. paths: (section, class of the x axis) -> lines, each a list of points; dots and bands: how many; tables:
    section -> rows of cells; best: cells that are marked as the best; cards: values and meanings; inputs, metas: attributes; titles: tooltips."""
    def __init__(self, path):
        super().__init__(path)
        self.paths, self.dots, self.bands, self.tables, self.axis = {}, {}, {}, {}, None
        self.best, self.cards, self.inputs, self.metas, self.titles = [], [], [], [], []

    def start(self, tag, attributes):
        kind = attributes.get("class") or ""
        if tag == "meta":
            self.metas.append(attributes)
        if tag == "div" and kind.startswith("chart"):
            self.axis = (kind.split() + [None])[1]
        if tag == "input":
            self.inputs.append(attributes)
        if tag == "tr":
            self.tables.setdefault(self.section, []).append([])
        if tag in ("td", "th"):
            self.tables[self.section][-1].append("")
            if kind == "best":
                self.best.append((self.section, len(self.tables[self.section]) - 1, len(self.tables[self.section][-1]) - 1))
        if tag == "path" and "lines" in [k for t, k in self.classes]:
            place = self.section, self.axis
            points = path_points(attributes["d"])
            if kind.startswith("dot"):
                self.dots[place] = self.dots.get(place, 0) + len(points)
            elif kind.startswith("band"):
                self.bands[place] = self.bands.get(place, 0) + 1
            else:
                self.paths.setdefault(place, []).append([point for piece in points for point in piece])
            if any(not (0 <= x <= 10000 and 0 <= y <= 3000) for piece in points for x, y in piece):
                self.wrong.append("a path leaves its plot in section %s" % self.section)

    def data(self, data):
        if self.open and self.open[-1] == "title":
            self.titles.append(data)

        elif "td" in self.open or "th" in self.open:
            self.tables[self.section][-1][-1] += data
        elif ("div", "card") in self.classes and self.open[-1] in ("b", "span"):
            self.cards.append(data)
