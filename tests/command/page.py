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
