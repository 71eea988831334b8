#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Backtraces of gdb: in a coroutine they list its functions up to the entry function, and end after
# at most one frame of the library's own; so they do at each instruction on the way into a coroutine
# and back, inline and in acosw(). Names come from symbols and frames from what a program always
# has, without debugging information. Needs gdb, and to be allowed to trace.

# shellcheck source=tests/harness.sh
. tests/harness.sh

# For each compiler and kind of processor.
VARIANTS=("-O0" "-O2" "-O2 -DACO_CONFIG_NO_INLINE_SWITCH")

cat >"$TMP/settings" <<'EOS'
set confirm off
set width 0
set height 0
set debuginfod enabled off
EOS

cat >"$TMP/stop" <<'EOS'
break arrives
commands
backtrace
continue
end
run
EOS

cat >"$TMP/step" <<'EOS'
break begins
run
while (unsigned long)$pc != (unsigned long)&ends
backtrace
x/i $pc
stepi
end
EOS

# Runs the commands of a file; then $TMP/said has what gdb said, and $TMP/backtraces the names of
# each backtrace on a line. One that was taken before the jump of a switch ends in "jumps".
run_gdb() {
    local what=$1 commands=$2
    gdb -nx -batch -x "$TMP/settings" -x "$commands" "$TMP/program" >"$TMP/said" 2>&1 ||
        fail "$what: gdb fails: $(tail -n 3 "$TMP/said")"
    if grep -E '\?\?|corrupt|Backtrace stopped|Cannot access' "$TMP/said" >&2; then
        fail "$what: gdb does not find its way"
    fi
    sed -nE -e 's/^#([0-9]+) +(0x[0-9a-f]+ in )?([^ ]+) .*/\1 \3/p' \
        -e 's/^=>.*jmp +\*.*\(%(rsi|ecx)\)$/- jumps/p' "$TMP/said" |
        awk '$1 == 0 && NR > 1 { print line; line = "" }
             { line = line (line ? " " : "") $2 }
             END { print line }' >"$TMP/backtraces"
}

# Two coroutines that stop four times each, and one that is destroyed after three.
check_stops() {
    local what=$1 line ct=0
    run_gdb "$what" "$TMP/stop"
    while IFS= read -r line; do
        [[ $line =~ ^arrives\ inner\ outer\ entry(\ aco_[a-z_]+)?$ ]] ||
            fail "$what: a backtrace is $line"
        ct=$((ct + 1))
    done <"$TMP/backtraces"
    ((ct == 11)) || fail "$what: $ct stops"
}

# The side of a backtrace, M of main or C of the coroutine; nothing if it is wrong. While the stack
# pointer is under way, the inline switch may pass for a call, so that a function is there twice.
side_of() {
    local switch='(aco[a-z_]* )*'
    if [[ $1 =~ ^$switch((begins |ends |resumes (resumes )?)?main)$ ]]; then
        echo M
    elif [[ $1 =~ ^$switch(arrives )?(inner (inner )?)?outer\ entry(\ aco_[a-z_]+)?$ ]]; then
        echo C
    fi
}

# One resume and yield: sides change with the two jumps, and nowhere else.
check_steps() {
    local what=$1 line sides=M
    run_gdb "$what" "$TMP/step"
    while IFS= read -r line; do
        # Startup code of libc has such a function, without call-frame information.
        [[ $line != __x86.get_pc_thunk* ]] || continue
        [[ $(side_of "${line% jumps}") == "${sides: -1}" ]] ||
            fail "$what: after sides $sides, a backtrace is $line"
        [[ $line != *jumps ]] || sides+=$([[ $sides == *M ]] && echo C || echo M)
    done <"$TMP/backtraces"
    [[ "$sides" == MCM ]] || fail "$what: sides are $sides, not MCM"
    if [[ $what == *NO_INLINE* ]]; then
        for line in "acosw resumes main" "acosw inner outer entry"; do
            grep -q "^$line" "$TMP/backtraces" || fail "$what: no backtrace is $line"
        done
    fi
}

run_variant() {
    local cc=$1 width=$2 options what="$1 $2 $3"
    read -ra options <<<"$3"
    must "$what: does not compile" "$cc" "$width" -std=gnu99 "${options[@]}" \
        "${C_WARNINGS[@]}" -I. tests/programs/backtrace_user.c aco.c acosw.S -o "$TMP/program"
    check_stops "$what"
    check_steps "$what"
}

need gdb:gdb
find_compilers gcc clang
echo 'int main(void) { return 0; }' | "${FOUND[0]}" -x c - -o "$TMP/program"
[[ $(gdb -nx -batch -ex run "$TMP/program" 2>&1) == *'exited normally'* ]] ||
    skip "gdb can't run a program here"
failed=0
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        # All are tried, whatever fails.
        for variant in "${VARIANTS[@]}"; do
            (run_variant "$cc" "$width" "$variant") || failed=1
        done
        echo "$cc $width: ${#VARIANTS[@]} variants"
    done
done
exit "$failed"
