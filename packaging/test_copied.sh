#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A project that has copied the four files builds and runs, in C and in C++; with an optional part
# or the runtime, it has copied that, too.

# shellcheck source=tests/harness.sh
. tests/harness.sh
# shellcheck source=packaging/consumer/harness.sh
. packaging/consumer/harness.sh

COPY=$TMP/copy
mkdir "$COPY"
cp aco.h aco.c acosw.S aco_assert_override.h "$COPY"
cp "$CONSUMER"/user.c* "$COPY"
cp extra/{cancel,stack_pool}/aco_*.[ch] "$COPY"

core=("$COPY/aco.c" "$COPY/acosw.S")
for compiler in "${C_COMPILER[0]}" "${CXX_COMPILER[0]}"; do
    must "$compiler: a program in C does not build with the four files" \
        "$compiler" "${WARNINGS[@]}" "$COPY/user.c" "${core[@]}" -o "$TMP/user"
    must "$compiler: a program in C fails with the four files" "$TMP/user"
done
# Optional parts are C.
for part in cancel stack_pool; do
    must "the part $part does not compile, copied" \
        "${C_COMPILER[@]}" -c "$COPY/aco_$part.c" -o "$COPY/$part.o"
done
must "a program in C++ does not build with the files copied" "${CXX_COMPILER[@]}" "${WARNINGS[@]}" \
    "$COPY/user.cc" "${core[@]}" "$COPY"/{cancel,stack_pool}.o -o "$TMP/user" -lpthread
must "a program in C++ fails with the files copied" "$TMP/user"
echo "the four files, copied: programs in C and C++ build and run"

# The folders as they are, and one command.
if [[ $RUNTIME == ON ]]; then
    mkdir -p "$TMP/tasks/extra"
    cp -R aco.h aco.c acosw.S aco_assert_override.h runtime hooks "$CONSUMER"/{tasks,hooks}.c \
        "$TMP/tasks"
    cp -R extra/stack_pool "$TMP/tasks/extra"
    cd "$TMP/tasks"
    must "a program of tasks does not build with the files copied" \
        "${C_COMPILER[@]}" -O2 -pthread -I. -Iruntime -Iextra/stack_pool tasks.c runtime/*/*.c \
        extra/stack_pool/*.c aco.c acosw.S
    must "a program of tasks fails with the files copied" ./a.out
    echo "the runtime, copied: a program of tasks builds and runs"
    must "a program with hooks does not build with the files copied" \
        "${C_COMPILER[@]}" -O2 -pthread -I. -Iruntime -Ihooks -Iextra/stack_pool hooks.c \
        runtime/*/*.c hooks/*.c extra/stack_pool/*.c aco.c acosw.S -ldl
    must "a program with hooks fails with the files copied" ./a.out
    echo "the hooks, copied: a program with hooks builds and runs"
fi
