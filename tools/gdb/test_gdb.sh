#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs gdb in batch mode with aco.py on sample.c: the live process, which then goes on to its end
# unharmed, and a core file of it, with the optimization and the frame pointers that make frames
# look different, with and without ACO_CONFIG_LIST, and with data that is broken on purpose. On
# other processors, what the stub of an emulator lets gdb see.
#
# seconds: 12

# shellcheck source=tests/harness.sh
. tests/harness.sh

need gdb:gdb
[[ $(gdb -nx -batch -ex 'python print("works")' 2>&1) == works ]] || skip "gdb without Python"

[[ $(gdb -nx -batch -ex run /bin/true 2>&1) == *"exited normally"* ]] ||
    skip "gdb can't run a program here"

SAMPLE=$TMP/sample
GDB=(gdb)

build() {
    local options=("$@")
    must "$*: the sample does not compile" "${options[@]}" "${C_WARNINGS[@]}" -g -I. \
        tools/gdb/sample.c aco.c acosw.S -o "$SAMPLE" -lpthread
}

# ---- Running gdb, and reading what it said -------------------------------------------------------

# ask COMMAND...: runs gdb on the sample, or on what DEBUGGEE names. Its words go to $TMP/said, with
# a line "== COMMAND" before those of each command.
ask() {
    local arguments=() command
    for command in "$@"; do
        arguments+=(-ex "echo == $command\\n" -ex "$command")
    done
    # Without the debug information of libc, which takes longer to read than all the rest.
    "${GDB[@]}" -nx -batch -iex 'set debug-file-directory /nonexistent' \
        -iex 'set debuginfod enabled off' \
        -iex 'set style enabled off' -x tools/gdb/aco.py "${arguments[@]}" "${DEBUGGEE[@]}" \
        >"$TMP/said" 2>&1 </dev/null ||
        true # the status is that of the last command, which may be one that must fail
    if [[ $(<"$TMP/said") =~ (Traceback|Python Exception) ]]; then
        wrong "a Python error instead of a line"
    fi
}

wrong() {
    cat "$TMP/said" >&2
    fail "$WHAT: $*"
}

# words_of COMMAND [N]: the answer of gdb to a command, when it was asked for the N-th time (1 if
# not given).
words_of() {
    awk -v command="== $1" -v nth="${2:-1}" '
        /^== / { inside = ($0 == command && ++count == nth); next }
        inside' "$TMP/said"
}

# says COMMAND REGEX [N]: what gdb said to the command matches, any white space being one blank.
says() {
    local text
    text=$(words_of "$1" "${3:-1}" | tr -s '[:space:]' ' ')
    [[ ${text% } =~ $2 ]] || wrong "$1 does not say $2"
}

# ---- A live process and a core file --------------------------------------------------------------

HEX="0x[0-9a-f]+"

# A row of `info aco`: number, thread, state, entry function, bytes, place.
row() {
    local stack="$HEX\\+[0-9]+"
    [[ $3 != main ]] || stack=-
    says "info aco" " $1 $2 $HEX $3 $4 $stack $5 $6( |$)"
}

check_list() {
    row 1 1 main - - "main at sample.c:[0-9]+"
    row 2 1 saved worker "[0-9]+" "yield at sample.c:[0-9]+"
    row 3 1 saved switcher "[0-9]+" "switch_by_function at sample.c:[0-9]+"
    row 4 1 yielded worker "[0-9]+" "yield at sample.c:[0-9]+"
    row 5 1 end ender - -
    row 6 1 init worker - -
    row 7 1 running runner "[0-9]+" "stop_here at sample.c:[0-9]+"
    row 8 2 main - - "[^ ]+( at [^ ]+)?"
    row 9 2 saved worker "[0-9]+" "yield at sample.c:[0-9]+"
    row 10 2 yielded switcher "[0-9]+" "switch_by_function at sample.c:[0-9]+"
    row 11 2 yielded worker "[0-9]+" "yield at sample.c:[0-9]+"
    row 12 2 end ender - -
    row 13 2 init worker - -
    row 14 2 init runner - -
    [[ $(words_of "info aco" | wc -l) == 15 ]] || wrong "info aco has not 15 lines"
}

# has_outline COMMAND OUTLINE: the functions of a backtrace are these and, unless they can't be
# trusted, so are the locals of known value: a number, a text, a pointer to a text further up.
has_outline() {
    local outline
    outline=$(words_of "$1" | awk -v has_locals="$HAS_LOCALS" '
        /^#/ { sub(/^#[0-9]+ +(0x[0-9a-f]+ in )?/, ""); function_name = $1; printf " %s", $1 }
        !has_locals || function_name ~ /^aco/ { next }
        /^ +(local|kept) = / { printf " %s", $3 }
        /^ +(text|its_name) = / { match($0, /"[^"]*"/)
                                  printf " %s", substr($0, RSTART, RLENGTH) }')
    ((HAS_LOCALS)) || set -- "$1" "$(sed -E 's/ ([0-9]+|"[^"]*")//g' <<<"$2")"
    [[ $outline == "$2" ]] || wrong "$1: the outline is$outline, and should be$2"
}

# The backtrace of one in nest(), whose tag is given, and with it every value.
check_nest() {
    local command=$1 tag=$2 title=$3 depth outline=" aco_i_suspend aco_yield yield"
    for depth in 0 1 2; do
        outline+=" nest $((tag * 100 + depth))"
        outline+=" \"depth $depth of $tag\" \"depth $((depth + 1)) of $tag\""
    done
    outline+=" nest $((tag * 100 + 3)) \"depth 3 of $tag\" \"nobody\" worker"
    says "$command" "^$title, entry worker #0 "
    has_outline "$command" "$outline"
}

# The backtrace of one in acosw(). Its caller's value is in a register that acosw() has saved.
check_switcher() {
    says "$1" "^$3, entry switcher #0 "
    has_outline "$1" " acosw switch_by_function $(($2 * 100)) switcher"
}

LOOK=("info aco" "aco bt 2 full" "aco bt 9 full" "aco bt 11 full" "aco bt 3 full" "aco bt 10 full"
    "aco bt 1" "aco bt 7" "aco bt 6" "aco bt all" "aco where" "aco where 10 full" "aco apply all bt"
    "aco bt worlds[0].in_place full"
    "info symbol worlds[0].in_place->fp"
    "show backtrace past-main" "bt" "thread" "aco frame 4" "up 2" "up 3" "info locals" "bt"
    "info aco"
    "aco bt 7" "frame" "aco frame" "bt" "aco frame 9" "aco frame 6" "aco frame 11" "bt" "aco frame"
    "thread 1" "up" "aco bt all" "frame")

# The frames of the first thread itself.
OWN_FRAMES="#0 (.* in )?stop_here \\(\\) at .* #1 (.* in )?runner \\(\\)"

check_look() {
    check_list
    check_nest "aco bt 2 full" 1 "aco 2, $HEX: thread 1, saved"
    check_nest "aco bt 9 full" 11 "aco 9, $HEX: thread 2, saved"
    check_nest "aco bt 11 full" 13 "aco 11, $HEX: thread 2, yielded"
    check_nest "aco bt worlds[0].in_place full" 3 "aco 4, $HEX: thread 1, yielded"
    check_switcher "aco bt 3 full" 2 "aco 3, $HEX: thread 1, saved"
    check_switcher "aco bt 10 full" 12 "aco 10, $HEX: thread 2, yielded"
    says "info symbol worlds[0].in_place->fp" "^worker in section "
    says "aco bt 1" "^aco 1, $HEX: thread 1, main, entry - #0 .* main \\(\\) at [^#]*$"
    says "aco bt 7" "running, entry runner $OWN_FRAMES"
    says "aco bt 6" "init, entry worker no frames$"
    says "aco bt all" "running, entry runner $OWN_FRAMES"
    [[ $(words_of "aco bt all" | grep -cE "^aco [0-9]+, $HEX: thread [12], ") == 14 ]] ||
        wrong "aco bt all has not 14 coroutines"
    says "aco where" "^aco 7, $HEX: thread 1, running, entry runner $OWN_FRAMES"
    check_switcher "aco where 10 full" 12 "aco 10, $HEX: thread 2, yielded"
    says "aco apply all bt" " aco 2, $HEX: thread 1, saved, entry worker, and 1 like it: 9 #0 [^.]*"
    says "aco apply all bt" " aco 4, $HEX: thread 1, yielded, entry worker, and 1 like it: 11 #0 "
    says "aco apply all bt" " aco 7, $HEX: thread 1, running, entry runner $OWN_FRAMES"
    [[ $(words_of "aco apply all bt" | grep -c "^aco [0-9]") == 12 ]] ||
        wrong "aco apply all bt has not 12 groups"
    check_selection
}

# Thread and frames are those of before; so they are after `aco frame`.
check_selection() {
    says "show backtrace past-main" "is off"
    says "bt" "^$OWN_FRAMES"
    says "thread" "^\\[Current thread is 1 "
    says "aco frame 4" "^#2 .* aco_i_suspend "
    says "up 2" "^#4 (.* in )?yield \\(\\) "
    says "up 3" "^#7 .* in nest \\("
    ((!HAS_LOCALS)) || says "info locals" "^local = 302 text = \"depth 2 of 3\""
    says "bt" "^#2 .* aco_i_suspend .* #3 .* #8 .* nest .* #9 .* worker \\(\\) at [^#]*$" 2
    [[ $(words_of "info aco" 2) == "$(words_of "info aco")" ]] || wrong "info aco differs"
    [[ $(words_of "aco bt 7" 2) == "$(words_of "aco bt 7")" ]] || wrong "aco bt 7 differs"
    says "frame" "^#7 .* in nest \\("
    says "bt" "^$OWN_FRAMES" 3
    says "aco frame 9" "^aco: the frames of 9 are saved out, not in place: use .aco bt 9 full.$"
    says "aco frame 6" "^aco: 6 has no frames$"
    says "bt" "^#[0-9]+ .* aco_i_suspend .* worker \\(\\) at [^#]*$" 4
    says "frame" "^#1 (.* in )?runner \\(\\)" 2
}

look_at_process_and_core() {
    local core=$TMP/core
    DEBUGGEE=("$SAMPLE")
    WHAT="$*, live"
    ask "break stop_here" "run" "${LOOK[@]}" "generate-core-file $core"
    check_look
    [[ $* != "gcc -m64 -O2" ]] || check_readme
    DEBUGGEE=("$SAMPLE" "$core")
    WHAT="$*, core file"
    ask "${LOOK[@]}"
    check_look
    echo "$*: seen, alive and in a core file"
}

# Functions with their places, and numbered lines of sources.
places() {
    sed -nE 's/^.*[ (]([a-z_]+) (\(.*\) )?at (\.\/|tools\/gdb\/)?([a-z]+\.[ch]:[0-9]+) *$/\1 at \4/p
        /^[0-9]+\t/p' | sort -u
}

# README.md shows what gdb has just said, and sources as they are; addresses and sizes may differ.
check_readme() {
    places <tools/gdb/README.md >"$TMP/shown"
    [[ $(wc -l <"$TMP/shown") -ge 6 ]] || wrong "README.md shows too few places"
    grep -hn '' aco.h tools/gdb/sample.c | sed 's/:/\t/' >"$TMP/lines"
    cat "$TMP/said" "$TMP/lines" | places | comm -23 "$TMP/shown" - >"$TMP/stale"
    [[ ! -s "$TMP/stale" ]] || wrong "README.md shows what gdb does not say: $(<"$TMP/stale")"
}

# ---- Cases ---------------------------------------------------------------------------------------

# place WORD: the line of the sample after the comment with the word.
place() {
    printf 'tools/gdb/sample.c:%d' "$(awk -v word="$1" 'index($0, word " ") { n = NR }
        END { print n + 1 }' tools/gdb/sample.c)"
}

# A thread that stands in main(); commands that let the program go on, or end it, while frames of a
# coroutine are selected; and its unharmed end.
look_and_continue() {
    local here end
    here=$(place "/* Here") end=$(place "/* There")
    DEBUGGEE=("$SAMPLE")
    WHAT="a thread in main()"
    ask "tbreak $here" "run" "bt" "info aco" "aco bt 2 full" "aco bt 3 full" "aco frame 4" "bt" \
        "kill" "info aco" "show backtrace past-main"
    says "info aco" " 1 1 $HEX main - - - main at ${here#tools/gdb/} 2 "
    check_nest "aco bt 2 full" 1 "aco 2, $HEX: thread 1, saved"
    check_switcher "aco bt 3 full" 2 "aco 3, $HEX: thread 1, saved"
    says "bt" "^#0 main \\(\\) at [^#]*$"
    says "bt" "^#1 .* in aco_i_suspend .* worker \\(\\) at [^#]*$" 2
    says "info aco" "^aco: no process and no core file: " 2
    says "show backtrace past-main" "is off"
    WHAT="a process that goes on"
    ask "tbreak stop_here" "run" "info aco" "aco bt all full" "aco frame 4" "next" "bt" \
        "aco frame 4" "tbreak $end" "continue" "info aco" "continue" "show backtrace past-main" \
        "show trust-readonly-sections"
    says "bt" "^#0 (.* in )?runner \\(\\) at "
    says "info aco" "^No coroutines.$" 2
    says "continue" "exited normally" 2
    says "show backtrace past-main" "is off"
    says "show trust-readonly-sections" "is off"
    echo "a thread in main(), and a process that goes on: seen"
}

refuse() {
    WHAT="refusals"
    local source=$TMP/other.c program=$TMP/other
    printf '#define ACO_CONFIG_DLOPEN\n#include "aco.h"\n%s\n' \
        'aco_t *co; int main(void) { return co != NULL; }' >"$source"
    DEBUGGEE=("$program")
    must "a program without libaco does not compile" "${FOUND[0]}" -g -I. "$source" -o "$program"
    ask "break main" "run" "info aco"
    says "info aco" "^aco: no variable aco_gtls_co: "
    must "a program without libaco does not compile" "${FOUND[0]}" -I. "$source" -o "$program"
    ask "break main" "run" "info aco"
    says "info aco" "^aco: no debug information about aco_t: "
    DEBUGGEE=("$SAMPLE")
    ask "info aco" "break main" "run" "info aco" "tbreak stop_here" "continue" \
        "aco bt" "aco bt 15" "aco bt nonsense" "aco bt 99999" "aco bt 0x12345678"
    says "info aco" "^aco: no process and no core file: start one, or attach, or load one$"
    says "info aco" "^No coroutines.$" 2
    says "aco bt" "^aco: which one\\? "
    says "aco bt 15" "^aco: there is no coroutine 15: \`info aco\` lists [0-9]+, and no memory has "
    says "aco bt 99999" \
        "^aco: there is no coroutine 99999: \`info aco\` lists [0-9]+, and no memory "
    says "aco bt nonsense" '^aco: No symbol "nonsense" in current context.$'
    says "aco bt 0x12345678" "^aco: there is no coroutine 0x12345678: "
    echo "refusals: one line each"
}

# Breaks a save stack, the list's end, its links, and the pointer to the running coroutine.
look_at_broken_data() {
    WHAT="broken data"
    DEBUGGEE=("$SAMPLE")
    ask "tbreak stop_here" "run" "set var worlds[0].nested->save_stack.valid_sz -= 8" \
        "set var worlds[0].in_place->reg[1] = 0x10" \
        "set var worlds[0].switcher->save_stack.ptr = 0" \
        "set var worlds[1].nested->save_stack.sz = 1" \
        "info aco" "aco bt 2" "aco frame 4" "aco bt all" \
        "set var worlds[0].nested->list_next = (aco_t *)0x10" "info aco" \
        "set var worlds[0].nested->list_prev = worlds[0].switcher->list_prev" "info aco" \
        "python gdb.execute(f'set var {name_in_program(\"aco_gtls_co\")} = 0x20')" "info aco"
    row 2 1 saved worker "[0-9]+" "broken: save_stack.valid_sz is [0-9]+, and should be [0-9]+"
    row 4 1 yielded worker - "broken: reg\\[SP\\] is not within the share stack"
    row 3 1 saved switcher "[0-9]+" "\\? Cannot access memory at address 0x0"
    row 9 2 saved worker "[0-9]+" "broken: save_stack.valid_sz is larger than save_stack.sz"
    says "aco bt 2" "entry worker broken: save_stack.valid_sz is"
    says "aco frame 4" "^aco: 4 has no frames: reg\\[SP\\] is not within the share stack$"
    says "aco bt all" "entry switcher Cannot access memory at address 0x0 aco 4"
    says "info aco" " aco: thread 1: the list of coroutines breaks off at 0x10: Cannot access " 2
    says "info aco" " aco: thread 1: the list of coroutines is broken: list_prev of $HEX is not" 3
    says "info aco" " aco: thread 1: aco_gtls_co can't be followed: Cannot access memory" 4
    says "info aco" " 2 $HEX main " 4
    echo "broken data: told in a line"
}

# Without a list gdb finds the running coroutine, its main coroutine, the owner of its share stack.
look_without_list() {
    WHAT="without ACO_CONFIG_LIST"
    DEBUGGEE=("$SAMPLE")
    ask "tbreak stop_here" "run" "info aco" "aco bt 2" "aco bt worlds[0].nested full" \
        "aco bt worlds[1].nested full" "set var worlds[0].shared->in_place = worlds[0].ended" \
        "info aco"
    row 1 1 main - - "main at sample.c:[0-9]+"
    row 2 1 running runner "[0-9]+" "stop_here at sample.c:[0-9]+"
    row 3 2 main - - "[^ ]+( at [^ ]+)?"
    says "info aco" "a build with -DACO_CONFIG_LIST shows all coroutines.$"
    [[ $(words_of "info aco" | wc -l) == 5 ]] || wrong "info aco has not 5 lines"
    says "aco bt 2" "running, entry runner #0 (.* in )?stop_here"
    check_nest "aco bt worlds[0].nested full" 1 "aco, $HEX: thread 1, saved"
    check_nest "aco bt worlds[1].nested full" 11 "aco, $HEX: thread [12], saved"
    says "info aco" " 3 1 $HEX end ender " 2
    ask "tbreak stop_here" "run" "info aco tasks"
    says "info aco tasks" "^aco: no runtime"
    echo "$WHAT: what is found without cost"
}

# The tasks of a runtime, which are listed without ACO_CONFIG_LIST, too.
look_at_tasks() {
    local row commands
    use_library aco_runtime "${FOUND[0]}" -O2
    must "the tasks do not compile" "${FOUND[0]}" "${C_WARNINGS[@]}" -O1 -g -std=gnu99 -pthread \
        "${INCLUDE[@]}" tools/gdb/gdb_sample.c "${OBJECTS[@]}" -o "$SAMPLE"
    # The kernel writes the core file: that of gdb lacks stacks with guards of MADV_GUARD_INSTALL.
    (cd "$TMP" && ulimit -c unlimited && "$SAMPLE" abort 2>/dev/null) || true
    for WHAT in "tasks of a process" "tasks in a core file"; do
        DEBUGGEE=("$SAMPLE") commands=()
        if [[ $WHAT == *core* ]]; then
            [[ -e $TMP/core ]] || break
            DEBUGGEE+=("$TMP/core")
        else
            commands=("tbreak stop_here" "run")
        fi
        ask "${commands[@]}" "info aco tasks" "info aco tasks all" "aco where" "aco where 4" \
            "aco where 6 full" "aco where 99" "aco apply all bt" "aco apply all" "thread"
        check_tasks
        echo "$WHAT: listed"
    done
    look_at_damage
}

check_tasks() {
    local row waits="waiting locker mutex $HEX locks at gdb_sample.c:[0-9]+" run=".*stop_here"
    [[ $WHAT != *core* ]] || run=".*first \\(arg="
    for row in "1 1 1 running first - $HEX (stop_here at|0x|[a-z_]+)" "2 3 1 $waits 4" \
        "1 2 1 waiting reads input of [0-9]+ $HEX reads at gdb_sample.c:[0-9]+" \
        "1 5 1 waiting sleeps sleep $HEX sleeps at gdb_sample.c:[0-9]+" \
        "1 6 1 waiting resumes sleep $HEX generates at gdb_sample.c:[0-9]+" \
        "1 7 - ready never_starts - - -$"; do
        says "info aco tasks" " $row"
    done
    says "info aco tasks all" " 3 1 $waits 4 1 $waits 5 1 waiting sleeps "
    says "aco where" "^task 1, first: running #0 $run"
    says "aco where 4" \
        "^task 4, locker: waiting for mutex #0 .* aco_mutex_lock .* locks .* aco_i_enter_task "
    local resumes="generates .* resumed by #0 .* resumes .* co = "
    says "aco where 6 full" "^task 6, resumes: waiting for sleep #0 .* aco_sleep .* $resumes"
    says "aco where 99" "^aco: there is no coroutine 99: "
    says "aco apply all bt" "^task 1, first: running #0 $run"
    says "aco apply all bt" " task 3, locker: waiting for mutex, and 1 like it: 4 #0 .* locks "
    says "aco apply all bt" " task 7, never_starts: ready no frames$"
    says "aco apply all" "^aco: aco apply is for one command: aco apply all bt$"
    says "thread" "^\\[Current thread is 1 "
}

# The list goes on where a task, its coroutine or its stack can't be read, or makes no sense.
look_at_damage() {
    WHAT="tasks whose data are broken" DEBUGGEE=("$SAMPLE")
    ask "tbreak stop_here" "run" "up" \
        "set var aco_i_loop->running->runtime->chunks->tasks[1].suspended = 0x10" \
        "set var aco_i_loop->running->runtime->chunks->tasks[2].co->reg[1] = 0x10" \
        "set var aco_i_loop->running->runtime->chunks->tasks[3].name = 0x10" \
        "set var aco_i_loop->running->runtime->chunks->tasks[4].state = 77" \
        "set var \$chunk = aco_i_loop->running->runtime->chunks" "set var \$chunk->next = \$chunk" \
        "info aco tasks" "aco apply all bt"
    says "info aco tasks" " 1 2 1 waiting reads input of [0-9]+ 0x10 \\? Cannot access memory "
    says "info aco tasks" " 1 3 1 waiting locker mutex $HEX broken: reg\\[SP\\] is not within "
    says "info aco tasks" \
        " 1 4 1 waiting \\? Cannot access memory at address 0x10 mutex $HEX locks at"
    says "info aco tasks" " 1 6 1 waiting resumes "
    says "aco apply all bt" " task 6, resumes: "
    [[ $(words_of "info aco tasks") != *sleeps* ]] || wrong "a state that there is not"
    echo "$WHAT: told"
}

# Only the program has debug information, and the symbols have a configuration in their names.
look_at_library_without_debug_information() {
    local options=("${FOUND[0]}" -O2 -DACO_CONFIG_LIST -Daco_gtls_co=aco_gtls_co_configured
        -Daco_i_gtls_list=aco_i_gtls_list_configured -I.)
    must "the library does not compile" "${options[@]}" -c aco.c -o "$TMP/aco.o"
    must "the library does not compile" "${options[@]}" -c acosw.S -o "$TMP/acosw.o"
    must "the sample does not compile" "${options[@]}" -g tools/gdb/sample.c "$TMP/aco.o" \
        "$TMP/acosw.o" -o "$SAMPLE" -lpthread
    WHAT="a library without debug information" DEBUGGEE=("$SAMPLE")
    ask "tbreak stop_here" "run" "info aco" "aco bt 2 full" "aco bt 3 full"
    check_list
    check_nest "aco bt 2 full" 1 "aco 2, $HEX: thread 1, saved"
    check_switcher "aco bt 3 full" 2 "aco 3, $HEX: thread 1, saved"
    echo "$WHAT: seen"
}

# Over the wire there are no thread-locals, so each coroutine is asked for by its address.
look_through_stub() {
    local commands=("aco bt worlds[0].nested full" "aco bt worlds[0].in_place full"
        "aco bt worlds[0].switcher")
    [[ $PROCESSOR == arm64 || $PROCESSOR == riscv64 ]] || return 0
    read -ra flags <<<"$2"
    build "$1" "${flags[@]}" -static -no-pie -O2 -DACO_CONFIG_LIST
    start_stub "${EMULATOR[$PROCESSOR]}" "$SAMPLE"
    WHAT=$PROCESSOR DEBUGGEE=("$SAMPLE") GDB=(gdb-multiarch)
    ask "target remote $TMP/socket" "break stop_here" "continue" "${commands[@]}" "info aco" \
        "aco frame worlds[0].in_place" "up 2" "bt" "kill"
    wait
    check_nest "${commands[0]}" 1 "aco, $HEX: thread [12], saved"
    check_nest "${commands[1]}" 3 "aco, $HEX: thread [12], yielded"
    says "${commands[2]}" "saved, entry switcher #0 .* acosw .* switch_by_function .* switcher "
    says "info aco" "aco: thread 1: its thread-local variables can't be read: "
    says "up 2" "^#3 (.* in )?yield \\(\\) "
    says "bt" "^#1 .* aco_i_suspend .* nest .* worker \\(\\) at [^#]*$"
    echo "$PROCESSOR: frames of coroutines seen under an emulator"
    GDB=(gdb)
}

if have gdb-multiarch; then
    HAS_LOCALS=1
    on_each_foreign look_through_stub
else
    [[ -z "$INSTALLED" ]] || fail "gdb-multiarch was not found, though -i was to install it"
    echo "other processors: gdb-multiarch was not found, not tested"
fi
find_compilers gcc clang
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        HAS_LOCALS=1
        for options in "-O2" "-O0" "-O2 -fno-omit-frame-pointer"; do
            [[ $cc$width == gcc-m64 || $options == -O2 || $cc$options == gcc-O0 ]] || continue
            [[ $cc$width != clang-m32 ]] || HAS_LOCALS=0
            read -ra flags <<<"$width $options"
            build "$cc" "${flags[@]}" -DACO_CONFIG_LIST
            look_at_process_and_core "$cc" "${flags[@]}"
        done
    done
done
HAS_LOCALS=1
build "${FOUND[0]}" -O2 -DACO_CONFIG_LIST
look_and_continue
refuse
look_at_broken_data
build "${FOUND[0]}" -O2
look_without_list
look_at_library_without_debug_information
[[ ! -d runtime ]] || look_at_tasks
