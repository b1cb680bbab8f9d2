#!/usr/bin/env bash
# scripts/site.py: links between pages hold, and the check can fail; where mkdocs is installed it builds the site without a warning, nothing in it is
# loaded from elsewhere, results are in it, and the search works in pages that are opened as files (where a browser is installed).
set -u
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
status=0
complain() {
    echo "FAILED: $*"
    status=1
}
mkdir -p "$tree/bench" "$tree/scripts"
for path in README.md CONTRIBUTING.md CHANGELOG.md LICENSE docs examples include cells bench/results scripts/site.py; do
    cp -r "$SOURCE_DIR/$path" "$tree/$path" || exit 1
done
chmod -R u+w "$tree"
cd "$tree" || exit 1

python3 scripts/site.py --pages-only >said 2>&1 || complain "the links of the pages: $(cat said)"
for wrong in 'the [lost page](LOST.md)' 'a [lost part](DATA.md#no-such-part)'; do
    cp docs/CELLS.md kept
    echo "See $wrong." >>docs/CELLS.md
    python3 scripts/site.py --pages-only >said 2>&1 && complain "$wrong passes"
    grep -q '^docs/CELLS.md: ' said || complain "$wrong: $(cat said)"
    cp kept docs/CELLS.md
done

if ! command -v mkdocs >/dev/null; then
    echo "site: no mkdocs, so the site is not built"
    exit $status
fi
python3 scripts/site.py >said 2>&1 || { complain "the site: $(cat said)"; exit 1; }
for page in index.html tutorial/1-first-training.html results/index.html results/cuda-NVIDIA-H200.html recurve.1.html files/examples/classify.c.html; do
    [ -s build/site/$page ] || complain "the site has no $page"
done
loaded=$(grep -rhoE '<(script|link|img)[^>]*(src|href)="(https?:)?//[^"]*"' build/site --include='*.html' | grep -v 'rel="canonical"' | sort -u)
[ -z "$loaded" ] || complain "the site loads $loaded"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "site: no browser, so the search is not tried"; exit $status; }
timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$tree/browser" --virtual-time-budget=10000 \
    --dump-dom "file://$tree/build/site/search.html?q=horizon" >found 2>/dev/null
grep -q '<article><h3><a href="./DATA.html' found || complain "the search for 'horizon' does not find the page of data"
exit $status
