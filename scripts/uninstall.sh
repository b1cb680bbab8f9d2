#!/usr/bin/env bash
# Removes what `make install` wrote below a prefix, by the list that it left there, and says what it removes. Folders stay, but for empty ones of Recurve's.
#   [DESTDIR=FOLDER] scripts/uninstall.sh PREFIX
set -u
[ $# = 1 ] || { echo "uninstall: give the prefix: scripts/uninstall.sh PREFIX"; exit 2; }
root=${DESTDIR:-}${1%/}
list=$root/share/recurve/installed-files
if [ ! -f "$list" ]; then
    echo "uninstall: there is no $list, so nothing of make install is below $root: give its PREFIX (and DESTDIR)"
    exit 1
fi
# Only what lies below the prefix can be removed, whatever the list says.
if grep -nE '^/|(^|/)\.\.(/|$)|^$' "$list"; then
    echo "uninstall: these lines of $list are not files below $root: mend the list, nothing was removed"
    exit 1
fi
status=0
count=0
remove() {
    [ -e "$root/$1" ] || [ -L "$root/$1" ] || return 0
    if rm -f -- "$root/$1"; then
        echo "removed $root/$1"
        count=$((count + 1))
    else
        status=1
    fi
}
files=$(cat "$list")
while IFS= read -r file; do
    [ "$file" = share/recurve/installed-files ] || remove "$file"
done <<<"$files"
[ $status = 0 ] || { echo "uninstall: not all files could be removed (see above); the list stays for another try"; exit 1; }
remove share/recurve/installed-files
# the folders that are named recurve, the inner ones first
while IFS= read -r folder; do
    rmdir -- "$root/$folder" 2>/dev/null && echo "removed $root/$folder/"
done < <(sed -nE 's#^(.*/)?(recurve)/[^/]*$#\1\2#p' <<<"$files" | sort -ur)
echo "removed $count files"
