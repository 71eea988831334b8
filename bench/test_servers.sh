#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The group `runtime`: servers answer with the bytes that they got, and tasks do what they are
# measured for, with the least of each workload; tables and charts are made of it; and a server that
# is wrong is told apart from one that can't be built.
#
# seconds: 40

# shellcheck source=tests/harness.sh
. tests/harness.sh

PYTHON=/usr/bin/python3
[[ -d bench && -d img && -d runtime && -d extra ]] ||
    skip "bench/, img/, runtime/ or extra/ is missing"
need "$PYTHON":python3 /usr/bin/time:time taskset:util-linux

# ---- All of them ---------------------------------------------------------------------------------

CHECKED=output/bench/runtime/check
rm -rf "$CHECKED"
must "a peer fails" bench/run.sh --group runtime --check --machine some-machine --only '\.(c|cc|py): '
tail -n 1 "$TMP/said"
not_built=$(sed -n '/: not built: /p' "$CHECKED/tables.md")
printf '%s\n' "$not_built"
[[ $not_built != *"does not build:"* ]] || fail "a server does not build"
for row in 'echo_1000,apart 100 1000,epoll,' 'echo_two,two 100 1000,aco pool,' \
    'echo_one,one 100 1000,aco share stack,' 'parked_1000000,parked 100,aco share stack,' \
    'sleepers_10,sleepers 10,aco pool,' 'mutex,mutex 10000,"aco pool, own control words",'; do
    grep -q "^$row.*,ns,ok," "$CHECKED/some-machine.csv" || fail "some-machine.csv has no row $row"
done
grep -q '^idle,idle 1,aco pool,stackful,wakes,ok,0$' "$CHECKED/some-machine.csv" ||
    fail "an idle loop wakes up"
grep -q '^| aco pool, shared control words | [0-9.]* | ' "$CHECKED/tables.md" ||
    fail "tables.md does not have what was measured"
for chart in connections turns sleepers; do
    [[ -s $CHECKED/scale_$chart.svg ]] || fail "there is no chart of $chart"
done

# ---- Servers that are wrong ----------------------------------------------------------------------

# In a copy of the project, whose only peers are these, made of the server on plain epoll.
mkdir -p "$TMP/project/bench/runtime" "$TMP/project/img"
cp img/canvas.py "$TMP/project/img"
cp aco.h aco.c acosw.S "$TMP/project"
cp -r bench/padding bench/peers "$TMP/project/bench"
cp bench/*.py bench/run.sh bench/published.csv "$TMP/project/bench"
cp bench/runtime/{echo.h,client.c,epoll.c} "$TMP/project/bench/runtime"
# server NAME PATTERN TEXT: as epoll.c, with one line changed
server() {
    sed -e "s|peer: epoll|peer: $1|" -e "s|$2|$3|" bench/runtime/epoll.c \
        >"$TMP/project/bench/runtime/$1.c"
    [[ $(diff bench/runtime/epoll.c "$TMP/project/bench/runtime/$1.c" | grep -c '^>') == 2 ]] ||
        fail "$1 is not made"
}
server liar '^        handler->written = 0;$' 'handler->written = 0, handler->buffer[63] ^= 1;'
server closer 'if (sz == 0' 'if (sz > 0'
server mute '    tell_port(port);' '    exit(1);'
server distant 'kind: callbacks' 'kind: callbacks\n * needs: no-such-package'
must_not "a wrong server goes unnoticed" 'FAILED: ' "$TMP/project/bench/run.sh" \
    --group runtime --check --machine some-machine --only ': echo_100$'
tables=$(<"$TMP/project/output/bench/runtime/check/tables.md")
for line in '- liar, echo_100: the server has sent other bytes than it got' \
    '- closer, echo_100: the server has closed a connection' \
    '- mute, echo_100: the server tells no port' \
    '- distant: not built: needs no-such-package: bench/run.sh -i installs it'; do
    [[ $tables == *"$line"* ]] || fail "tables.md of wrong servers does not say $line: $tables"
done
[[ $tables != *"- epoll"* ]] || fail "a right server passes for wrong"
echo "wrong servers are told"
