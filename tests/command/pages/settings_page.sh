#!/usr/bin/env bash
# docs/SETTINGS.md is what scripts/settings-page.sh writes from the library; and the check that says so can fail.
set -u
bash "$SOURCE_DIR/scripts/settings-page.sh" --check "$BUILD_DIR" || exit 1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/scripts" "$tree/docs"
cp -r "$SOURCE_DIR/include" "$tree/"
cp "$SOURCE_DIR/scripts/settings-page.sh" "$tree/scripts/"
sed '/^| `hidden`/d' "$SOURCE_DIR/docs/SETTINGS.md" >"$tree/docs/SETTINGS.md"
if bash "$tree/scripts/settings-page.sh" --check "$BUILD_DIR" >"$tree/said" 2>&1; then
    echo "a page without the setting hidden passes"
    exit 1
fi
grep -q '^> | `hidden`' "$tree/said" || { cat "$tree/said"; exit 1; }
