#!/usr/bin/env bash
# Runs a benchmark program and writes its results, with machine, versions, date and commit, to bench/results/.
#   scripts/record-bench.sh NAME [BUILD-DIRECTORY]     NAME as in bench/NAME.c
set -eu
cd "$(dirname "$0")/.."
name=${1:?usage: record-bench.sh NAME [BUILD-DIRECTORY]}
build=${2:-build/release}
out=bench/results/$name-$(uname -m).json
mkdir -p bench/results
cmake --build "$build" --target "bench_$name" >/dev/null
commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo " and changes")
measured=$("$build/bench/bench_$name" --json)
cpu=$(LC_ALL=C lscpu | sed -n 's/^Model name: *//p' | head -n 1)
cat >"$out" <<END
{
  "benchmark": "$name",
  "date": "$(date -u +%Y-%m-%d)",
  "commit": "$commit",
  "machine": {"cpu": "$cpu", "cores": $(nproc), "architecture": "$(uname -m)", "system": "$(. /etc/os-release && echo "$PRETTY_NAME")"},
  "compiler": "$(cc --version | head -n 1)",
  "measured": $(printf '%s\n' "$measured" | sed '2,$s/^/  /')
}
END
/usr/bin/python3 -m json.tool "$out" >/dev/null
echo "wrote $out"
