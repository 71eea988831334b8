#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The peers in C, C++ and Lua do what they claim, with the least of each workload; tables, charts and
# quotations are made of it; and a peer that is wrong is told apart from one that can't be built,
# and stops nobody else.

# shellcheck source=tests/harness.sh
. tests/harness.sh

PYTHON=/usr/bin/python3
[[ -d bench ]] || skip "there is no bench/"
need "$PYTHON":python3 /usr/bin/time:time taskset:util-linux

# ---- All of them ---------------------------------------------------------------------------------

must "a peer fails" bench/run.sh --check --only '\.(c|cc|lua): '
CHECKED=output/bench/check
tail -n 1 "$TMP/said"
# Compilers are there, so without a package missing a peer is built.
not_built=$(sed -n '/: not built: /p' "$CHECKED/tables.md")
printf '%s\n' "$not_built"
[[ $not_built != *"does not build"* ]] || fail "a peer does not build"
[[ -z $not_built ]] || [[ -z $INSTALLED ]] || fail "a peer lacks what -i was to install"
for row in 'switch,switch 10000,aco pool,' 'table,table 100 1 131072,aco standalone,' \
    'share_8,share 100 8 1,aco share stack,' 'skynet_nested,skynet nested 1000,C++20,' \
    'many_64kb,many 100 65536 1,glibc ucontext,' 'life,life 1000,"POSIX threads, futex",'; do
    [[ $(< "$CHECKED/results.csv") == *"$row"* ]] || fail "results.csv has no row $row"
done
[[ $(< "$CHECKED/tables.md") == *'| aco pool | '*' **'*'| libcopp v2 | '* ]] ||
    fail "tables.md does not have what was measured, and below what was published"
if "$PYTHON" -c 'import matplotlib' 2> /dev/null; then
    for chart in switch life many skynet share memory count live pure; do
        [[ -s $CHECKED/$chart.svg ]] || fail "there is no chart $chart"
    done
fi

# ---- What documents quote ------------------------------------------------------------------------

cat > "$TMP/quote.py" <<'END'
import re
import sys
sys.path.insert(0, "bench")
import report
from plan import WORKLOADS, find_peers
from run import load
from pathlib import Path
results = report.Results(*load(Path(sys.argv[1])), find_peers())
made = report.tables(results)
english, chinese = Path(sys.argv[2], "some.md"), Path(sys.argv[2], "some_zh.md")
text = """<!-- bench headline -->
stale
<!-- /bench -->
<!-- bench machine -->
stale
<!-- /bench -->
<!-- ratio switch ns: glibc ucontext / aco pool -->stale<!-- /ratio --> times"""
above, below = (results.median(peer, "switch", "ns") for peer in ("glibc ucontext", "aco pool"))
for document, words in ((english, ("| peer | ", "Measured on ")),
                        (chinese, ("| 对比项 | ", " 测于 "))):
    document.write_text(text)
    quoted = report.quote(results, document, made)
    assert "stale" not in quoted and "| aco pool | " in quoted
    assert all(word in quoted for word in words), quoted
    assert f"aco pool -->{report.number(above / below)}<!-- /ratio --> times" in quoted, quoted
    document.write_text(quoted)
    assert report.quote(results, document, made) == quoted
for document in report.DOCUMENTS:
    text = document.read_text()
    known = report.chinese_tables(results, made) if "_zh" in document.name else made
    for name, body in re.findall(r"<!-- bench (.+?) -->\n(.*?)<!-- /bench -->", text, re.DOTALL):
        assert name in known, f"{document}: there is no table {name}"
        if name == "headline": # which is translated
            heads = body.split("\n")[0]
            assert heads == known[name].split("\n")[0], f"{document}: {heads}"
    for workload, metric, *titles in report.RATIO.findall(text):
        assert workload in {w.name for w in WORKLOADS}, f"{document}: no workload {workload}"
        for title in titles:
            assert title in results.peers, f"{document}: no peer {title}"
END
must "documents are not quoted to" env PYTHONDONTWRITEBYTECODE=1 "$PYTHON" "$TMP/quote.py" \
    "$CHECKED/measured.jsonl" "$TMP"

# ---- What is not there ---------------------------------------------------------------------------

must_not "nothing to measure passes for success" "nothing matches --only 'nonsense'" \
    bench/run.sh --check --only nonsense

# ---- Peers that are wrong ------------------------------------------------------------------------

# In a copy of the project, whose only peers are these.
mkdir -p "$TMP/project/bench/peers"
cp bench/*.py bench/run.sh bench/published.csv "$TMP/project/bench"
cp bench/peers/{ucontext.c,*.h} "$TMP/project/bench/peers"
peer() {
    printf '# kind: stackful\n# needs: %s\n# peer: %s\n# build: %s\n' "$2" "$1" "$3" \
        > "$TMP/project/bench/peers/$1.sh"
}
# shellcheck disable=SC2016 # for whoever builds it
{
    peer liar "" 'printf "#!/bin/sh\necho wrong sum >&2; exit 1" > $OUT'
    peer mute "" 'printf "#!/bin/sh\nexit 77" > $OUT'
    peer broken "" 'echo error: no such thing; false'
    peer distant no-such-package true
}
# What would install packages only notes which.
mkdir "$TMP/bin"
: >"$TMP/asked"
# shellcheck disable=SC2016 # for whoever runs it
printf '#!/bin/sh\n[ "$1" != apt-get ] || shift\necho "$@" >>"%s"\n' "$TMP/asked" \
    >"$TMP/bin/apt-get"
chmod +x "$TMP/bin/apt-get"
cp "$TMP/bin/apt-get" "$TMP/bin/sudo"
must_not "a wrong peer goes unnoticed" 'FAILED: liar, switch: wrong sum' \
    env PATH="$TMP/bin:$PATH" "$TMP/project/bench/run.sh" -i --check
[[ $(< "$TMP/asked") == *install*no-such-package* ]] || fail "bench/run.sh -i installs nothing"
tables=$(< "$TMP/project/output/bench/check/tables.md")
for line in '- broken: not built: does not build: error: no such thing' \
    '- distant: not built: needs no-such-package: bench/run.sh -i installs it' \
    '- liar, switch: wrong sum' '| glibc ucontext | **'; do
    [[ $tables == *"$line"* ]] || fail "tables.md of wrong peers does not say $line"
done
[[ $tables != *"mute"* ]] || fail "a workload that a peer does not have is reported as missing"
echo "wrong peers are told"
