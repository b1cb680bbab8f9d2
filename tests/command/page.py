"""A page as a browser reads it: whole, well-formed, with nothing to fetch and no script. A test's own class says in `start` and `data`
what else it looks for; sentences go into `wrong`."""
import re
import sys
from html.parser import HTMLParser


class Page(HTMLParser):
    CHILDLESS = ("meta", "link", "wbr")

    def __init__(self, path):
        super().__init__()
        self.path, self.wrong = path, []
        self.open, self.section, self.words = [], None, []
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

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append("</%s> closes what is not open" % tag)

    def handle_data(self, data):
        self.words.append(data.strip())
        self.data(data)

    def report(self):
        for sentence in self.wrong[:10]:
            print("FAILED: %s: %s" % (self.path, sentence))
        sys.exit(bool(self.wrong))
