#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The groups besides the core: servers answer with the bytes that they got, and tasks, hooks and
# generators do what they are measured for, with the least of each workload; tables and charts are
# made of it; and a server that is wrong is told apart from one that can't be built.
#
# seconds: 75

# shellcheck source=tests/harness.sh
. tests/harness.sh

PYTHON=/usr/bin/python3
[[ -d bench && -d img && -d runtime && -d extra ]] ||
    skip "bench/, img/, runtime/ or extra/ is missing"
need "$PYTHON":python3 /usr/bin/time:time taskset:util-linux

# ---- All of them ---------------------------------------------------------------------------------

# check_group NAME: its results are then in $CHECKED.
check_group() {
    local not_built
    CHECKED=output/bench/$1/check
    rm -rf "$CHECKED"
    must "a peer of $1 fails" \
        bench/run.sh --group "$1" --check --machine some-machine --only '\.(c|cc|py): '
    tail -n 1 "$TMP/said"
    not_built=$(sed -n '/: not built: /p' "$CHECKED/tables.md")
    printf '%s\n' "$not_built"
    [[ $not_built != *"does not build:"* ]] || fail "a peer of $1 does not build"
}

check_group cpp
for row in 'flat,flat 10000,aco.hpp,' 'tree,tree 1,aco.hpp,' 'co_await,co_await 10000,aco.hpp,' \
    'spawn_join,spawn_join 10000,aco.hpp,' 'flat,flat 10000,C++20,' \
    'tree,tree 1,"C++20, by loops",'; do
    grep -q "^$row.*,ns,ok," "$CHECKED/some-machine.csv" || fail "some-machine.csv has no row $row"
done
grep -q '^| a value of a generator, ns | [0-9.]* | [0-9.]* | [^|0-9]* | [0-9.]* |$' \
    "$CHECKED/tables.md" || fail "tables.md does not have what was measured of generators"

if [[ " $OPTIONS " == *" no-servers "* ]]; then
    echo "servers are left out (-o no-servers), hooks are not tested"
else
    check_group hooks
    if [[ $(<"$CHECKED/tables.md") != *": not built: "* ]]; then
        for workload in nanosleep blpop pg mariadb http https; do
            for peer in tasks threads; do
                grep -q "^$workload,$workload 10,$peer,.*,cpu_ms,ok," "$CHECKED/some-machine.csv" ||
                    fail "$workload has no row of $peer"
            done
        done
        grep -q '^| .pthread_mutex_lock(). and .* | [0-9.]* | [0-9.]* | [0-9.]* |$' \
            "$CHECKED/tables.md" || fail "tables.md does not have what was measured of hooks"
    fi
fi

check_group pthreads
for row in 'threads_1000,apart 100 1000,threads,' 'threads_1000,apart 100 1000,aco-run,' \
    'hand_over,hand_over 1000,"aco-run, 1 KiB of thread-local variables",' \
    'sleepers_100000,sleepers 100,aco-run,' 'start,start 10,aco-run,'; do
    grep -q "^$row.*,ok," "$CHECKED/some-machine.csv" || fail "some-machine.csv has no row $row"
done
grep -q '^| aco-run |\( [0-9.,*]* |\)\{5\} ' "$CHECKED/tables.md" ||
    fail "tables.md does not have what was measured of threads"

check_group runtime
for row in 'echo_1000,apart 100 1000,epoll,' 'echo_two,two 100 1000,aco pool,' \
    'echo_one,one 100 1000,aco share stack,' 'parked_1000000,parked 100,aco share stack,' \
    'sleepers_10,sleepers 10,aco pool,' 'mutex,mutex 10000,"aco pool, own control words",'; do
    grep -q "^$row.*,ns,ok," "$CHECKED/some-machine.csv" || fail "some-machine.csv has no row $row"
done
grep -q '^idle,idle 1,aco pool,stackful,wakes,ok,0$' "$CHECKED/some-machine.csv" ||
    fail "an idle loop wakes up"
grep -q '^| aco pool, shared control words | [0-9.*]* | ' "$CHECKED/tables.md" ||
    fail "tables.md does not have what was measured"
for chart in connections turns sleepers; do
    [[ -s $CHECKED/scale_$chart.svg ]] || fail "there is no chart of $chart"
done

# ---- Servers that are wrong ----------------------------------------------------------------------

# These, made of the server on plain epoll, are the only peers of a copy of the project.
mkdir -p "$TMP/project/bench/runtime" "$TMP/project/img"
cp --parents tools/libraries "$TMP/project"
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
