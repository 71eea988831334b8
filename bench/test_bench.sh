#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The peers in C, C++ and Lua do what they claim, with the least of each workload; tables and charts
# are made of it; and a peer that is wrong is told apart from one that can't be built, and does not
# stop the others. Programs in C lie at another place in each round.
#
# seconds: 57

# shellcheck source=tests/harness.sh
. tests/harness.sh

PYTHON=/usr/bin/python3
[[ -d bench && -d img ]] || skip "there is no bench/ or no img/"
need "$PYTHON":python3 /usr/bin/time:time taskset:util-linux

# ---- All of them ---------------------------------------------------------------------------------

CHECKED=output/bench/check
rm -rf "$CHECKED"
must "a peer fails" bench/run.sh --check --machine some-machine --only '\.(c|cc|lua): '
tail -n 1 "$TMP/said"
# Compilers are there, so without a package missing a peer is built, if it is not from a registry.
not_built=$(sed -n '/: not built: /p' "$CHECKED/tables.md")
printf '%s\n' "$not_built"
[[ $not_built != *"does not build:"* ]] || fail "a peer does not build"
[[ -z $not_built ]] || [[ -z $INSTALLED ]] || fail "a peer lacks what -i was to install"
for row in 'switch,switch 10000,aco pool,' 'table,table 100 1 131072,aco standalone,' \
    'share_8,share 100 8 1,aco share stack,' 'skynet_nested,skynet nested 1000,C++20,' \
    'many_64kb,many 100 65536 1,glibc ucontext,' 'life,life 1000,"POSIX threads, futex",'; do
    [[ $(< "$CHECKED/some-machine.csv") == *"$row"* ]] || fail "some-machine.csv has no row $row"
done
[[ $(< "$CHECKED/tables.md") == \
    *'**some-machine**'*'| aco pool, shared control words | '*'**'* ]] ||
    fail "tables.md does not have what was measured"
for chart in switch life many skynet share memory count live pure; do
    [[ -s $CHECKED/$chart.svg ]] || fail "there is no chart $chart"
done

# ---- Nothing to measure --------------------------------------------------------------------------

must_not "nothing to measure passes for success" "nothing matches --only 'nonsense'" \
    bench/run.sh --check --only nonsense

# ---- Peers that are wrong ------------------------------------------------------------------------

# These are the only peers of a copy of the project.
mkdir -p "$TMP/project/bench/peers" "$TMP/project/img"
cp --parents tools/libraries "$TMP/project"
cp img/canvas.py "$TMP/project/img"
cp aco.h aco.c acosw.S "$TMP/project"
cp -r bench/padding "$TMP/project/bench"
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
# A command that would install packages only notes which.
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

# ---- A run in full -------------------------------------------------------------------------------

rm "$TMP"/project/bench/peers/*
# shellcheck disable=SC2016 # for whoever builds it
peer instant "" 'printf "#!/bin/sh\necho ns 2\necho ms 2\necho switch_ns 2" > $OUT'
printf '<!-- bench switch -->\n<!-- /bench -->\n' > "$TMP/project/README.md"
: > "$TMP/project/README_zh.md"
RESULTS=$TMP/project/bench/results
must "a run in full fails" "$TMP/project/bench/run.sh" --machine one
grep -q '^switch,switch .*,instant,stackful,ns,ok,2 2 2 2 2 2 2 2$' "$RESULTS/one.csv" ||
    fail "a run in full does not keep its results"
[[ $(< "$TMP/project/README.md") == *'**one**'*'| instant | **2.00** |'* ]] ||
    fail "a run in full is not quoted"
must "a run in part fails" "$TMP/project/bench/run.sh" --machine two --only ': switch'
[[ -s $TMP/project/output/bench/full/two.csv && ! -e $RESULTS/two.csv ]] ||
    fail "a run in part is published"
cp "$TMP/project/output/bench/full/two.csv" "$RESULTS"
[[ $(< "$RESULTS/two.csv") == *$'\n# paddings: 8, except of instant\n'* ]] ||
    fail "a program that has one place passes for eight"
must "results that were copied can't be drawn" "$TMP/project/bench/run.sh" --draw
[[ $(< "$TMP/project/README.md") == *'**one**'*'| instant |'*'**two**'*'| instant |'* ]] ||
    fail "results that were copied are not quoted"
echo "whole runs are published, by machine"

# ---- Places --------------------------------------------------------------------------------------

# A program that tells where its code lies, and how far from the one object that of the other does.
cat > "$TMP/project/bench/peers/moved.c" << 'END'
/* kind: stackful
 * peer: moved
 * build: $CC -DOTHER $SRC -c -o $OUT.o && $CC $SRC $OUT.o -o $OUT
 */
#include <stdint.h>
#include <stdio.h>
extern char __executable_start;
void other(void);
#ifdef OTHER
void other(void) {}
#else
static void own(void) {}
int main(void)
{
    uintptr_t start = (uintptr_t)&__executable_start, at = (uintptr_t)own;
    printf("ns %zu\napart %zu\n", at - start, (uintptr_t)other - at);
}
#endif
END
# A program that is not linked may heed $PADDING.
# shellcheck disable=SC2016 # for whoever builds it
peer script "" 'printf "#!/bin/sh\necho ns $((PADDING + 1))" > $OUT'
must "programs in eight places can't be measured" \
    "$TMP/project/bench/run.sh" --machine three --only '(moved|script): switch$'
# steps ROW: by how many bytes it differs from round to round
steps() {
    sed -n "s/^switch,.*,$1,ok,//p" "$TMP/project/output/bench/full/three.csv" |
        awk '{ for (i = 2; i <= NF; i++) printf "%d ", $i - $(i - 1) }'
}
for row in moved,stackful,{ns,apart} script,stackful,ns; do
    [[ $(steps "$row") == "80 80 80 80 80 80 -560 " ]] ||
        fail "the rounds of $row do not run in eight places: $(steps "$row")"
done
grep -q '^# paddings: 8, except of instant$' "$TMP/project/output/bench/full/three.csv" ||
    fail "programs in eight places pass for less"
echo "programs lie at another place in each round"
