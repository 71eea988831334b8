#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The runtime is built in floors: a file uses, by its relocations, only files of its own folder and
# of those below, and no files use each other in a circle. Folders include their own headers and
# those below, other libraries extension.h alone. Without observe/, the rest builds and passes its
# own tests.
#
# parts: arrows unobserved
# seconds: 5 60

# shellcheck source=tests/harness.sh
. tests/harness.sh

readonly FLOORS=(base sched io sync observe start) # the lowest first
read -ra COMPILER <<<"$CC"

# Prints "USER USED SYMBOL" for each use of another file of the runtime.
list_arrows() {
    use_library aco_runtime "${COMPILER[@]}" -O2
    nm -A "${OBJECTS[@]}" |
        sed -nE 's,^.*/runtime/([a-z]+/[a-z_]+)\.\.[^:]*:[0-9a-f]* +,\1 ,p' | awk '
        $2 == "U" || $2 == "w" { users[$3] = users[$3] " " $1; next }
        $2 ~ /[A-Z]/ { home[$3] = $1 }
        END {
            for (symbol in home) {
                ct = split(users[symbol], user, " ")
                for (i = 1; i <= ct; i++)
                    print user[i], home[symbol], symbol
            }
        }'
}

# level FOLDER: its floor.
level() {
    local i
    for i in "${!FLOORS[@]}"; do
        [[ ${FLOORS[i]} != "$1" ]] || echo "$i"
    done
}

check_arrows() {
    local user used symbol ct=0
    list_arrows >"$TMP/arrows"
    while read -r user used symbol; do
        ct=$((ct + 1))
        (($(level "${used%/*}") <= $(level "${user%/*}"))) ||
            fail "$user.c uses $symbol of $used.c, which is on a higher floor"
    done <"$TMP/arrows"
    ((ct > 400)) || fail "only $ct uses were found"
    cut -d ' ' -f 1,2 "$TMP/arrows" | tsort >/dev/null 2>"$TMP/said" ||
        fail "files use each other in a circle: $(sed 's/^tsort: //' "$TMP/said" | xargs)"
    echo "no arrow of $ct leads up, and none is part of a circle"
}

# check_includes FOLDER PATTERN: the names in quotes that its files include match the pattern.
check_includes() {
    local line
    while read -r line; do
        fail "$line: $1 may include $2"
    done < <(grep -rHE --include='*.[ch]' --include='*.cc' --exclude-dir=tests \
        '^ *# *include "' "$1" | grep -vE ":.*\"($2)\"")
}

check_all_includes() {
    local folder below=
    for folder in "${FLOORS[@]}"; do
        below+="${below:+|}$folder/.*"
        check_includes "runtime/$folder" "$below|extension.h|aco_.*"
    done
    check_includes hooks "extension.h|aco_.*|internal.h|waiting.h"
    check_includes compat "extension.h|aco_.*|co_.*|coroutine.h"
    echo "no include leads up"
}

# The tests of what is left when the folder observe/ is deleted.
check_unobserved() {
    local test name
    mkdir "$TMP/tree"
    cp -R aco.* aco_assert_override.h acosw.S make.sh extra packaging runtime tests tools \
        "$TMP/tree"
    cd "$TMP/tree"
    rm -r runtime/observe
    "${COMPILER[@]}" -I. -Iruntime -c tests/programs/unobserved.c -o "$TMP/unobserved.o"
    OUTPUT=$TMP/output use_library aco_runtime "${COMPILER[@]}" -O1
    OBJECTS+=("$TMP/unobserved.o")
    for test in runtime/*/tests/{test,random}_*.c; do
        name=$(basename "$test" .c)
        use_program "$test" "${COMPILER[@]}" -O1
        run_arguments "$name" "$TMP/$name"
    done
    echo "the runtime without observe/ passes its tests"
}

if [[ ${1:-} != unobserved ]]; then
    check_arrows
    check_all_includes
fi
if [[ ${1:-} != arrows ]]; then
    need_cmocka
    check_unobserved
fi
