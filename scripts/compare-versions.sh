#!/bin/sh
# Compares the speed of two versions on this machine: builds the engine's benchmarks of both, runs them in turn, old and new, and
# prints the medians and their ratios. For software adapters, where nothing may become slower.
# usage: [BENCHTIME=3x] scripts/compare-versions.sh OLD NEW [RUNS [PATTERN]]     commits, 7 runs, all of the built-in model's by default
set -eu
old=$1 new=$2 runs=${3:-7} pattern=${4:-'(Decode|Prefill)/builtin/none/(gpu|cpu)$|Chats/gpu/f16/16$'}
root=$(git rev-parse --show-toplevel)
work=$(mktemp -d)
trap 'exit 1' INT TERM # dash leaves out the EXIT trap otherwise
trap 'for v in old new; do git -C "$root" worktree remove --force "$work/$v" 2>/dev/null || true; done; rm -rf "$work"' EXIT
for v in old new; do
	eval commit=\$$v
	git -C "$root" worktree add -q --detach "$work/$v" "$commit"
	(cd "$work/$v" && go test -c -trimpath -o "$work/$v.test" ./engine/local)
done
i=0
while [ $i -lt "$runs" ]; do
	for v in old new; do
		(cd "$work/$v/engine/local" && "$work/$v.test" -test.run '^$' -test.bench "$pattern" -test.benchtime "${BENCHTIME:-1x}") | sed -n "s|^Benchmark|$v |p" >>"$work/results"
	done
	i=$((i + 1))
	echo "run $i of $runs" >&2
done
# A line is: version, name-cores, iterations, then value and unit in turn.
awk '
	{ for (f = 4; f < NF; f += 2) if ($(f + 1) == "tok/s") { name = $2; sub(/-[0-9]+$/, "", name); key = $1 SUBSEP name; values[key] = values[key] " " $f; names[name] = 1 } }
	function median(s,   a, n, i, j, t) {
		n = split(s, a, " ")
		for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (a[j] + 0 < a[i] + 0) { t = a[i]; a[i] = a[j]; a[j] = t }
		return (a[int((n + 1) / 2)] + a[int(n / 2) + 1]) / 2
	}
	END {
		printf "%-36s %12s %12s %8s\n", "tokens/s, median", "old", "new", "new/old"
		for (n in names) { o = median(values["old" SUBSEP n]); w = median(values["new" SUBSEP n]); printf "%-36s %12.1f %12.1f %8.2f\n", n, o, w, w / o }
	}' "$work/results" | sort -r
