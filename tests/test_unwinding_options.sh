#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles and runs test_unwinding.c with whatever options make a compiler lay out frames, and
# describe them to unwinders, in another way. On an arm64 that signs return addresses, with a
# breakpoint before each instruction of the switch, from which the unwinder looks. And each line of
# call-frame information in acosw() is needed.

# shellcheck source=tests/harness.sh
. tests/harness.sh
need_cmocka

# Options for each compiler and kind of processor.
VARIANTS=(
    "-O0"
    "-O0 -fPIC -fomit-frame-pointer"
    "-O2"
    "-O2 -fPIC -fno-omit-frame-pointer -DHAVE_FRAME_POINTERS"
    "-O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"
    "-O2 -fPIC -fomit-frame-pointer -DACO_CONFIG_SHARE_FPU_MXCSR_ENV"
)
SOURCES=(aco.c acosw.S tests/harness.c tests/no_inline.c)

# build_objects COMPILER WIDTH DIRECTORY OPTION...: objects of the library and of what tests have in
# common. WIDTH has the options for a processor in one word.
build_objects() {
    local cc=$1 width objects=$3 source
    read -ra width <<<"$2"
    mkdir -p "$objects"
    for source in "${SOURCES[@]}"; do
        must "$cc $2 ${*:4}: $source does not compile" "$cc" "${width[@]}" "${@:4}" -std=gnu99 -O2 \
            -fPIC "${CMOCKA[@]}" -I. -c "$source" -o "$objects/$(basename "$source").o"
    done
}

# run_variant COMPILER WIDTH OPTIONS OBJECTS: compiles and runs one; 1 if that fails.
run_variant() {
    local what="$1 $2 $3" width options objects=$4
    read -ra width <<<"$2"
    read -ra options <<<"$3"
    [[ $3 != *SHARE* ]] || objects+=-shared
    must "$what: does not compile" "$1" "${width[@]}" -std=gnu99 -g \
        -fasynchronous-unwind-tables "${options[@]}" "${C_WARNINGS[@]}" -I. \
        tests/test_unwinding.c "$objects"/*.o -o "$TMP/program" "${CMOCKA[@]}" -lpthread -lm
    must "$what: a backtrace is wrong" "${RUN[@]}" "$TMP/program"
}

# check COMPILER WIDTH: all variants are tried, whatever fails.
check() {
    local objects=$TMP/objects variant
    rm -rf "$objects" "$objects-shared"
    build_objects "$1" "$2" "$objects"
    build_objects "$1" "$2" "$objects-shared" -DACO_CONFIG_SHARE_FPU_MXCSR_ENV
    for variant in "${VARIANTS[@]}"; do
        (run_variant "$1" "$2" "$variant" "$objects") || failed=1
    done
    echo "${PROCESSOR:-$1 $2}: ${#VARIANTS[@]} variants of options"
}

# check_lines COMPILER WIDTH: each line of call-frame information in acosw(), taken out, is missed.
# No optimizer may make registers of the two sides equal by chance.
check_lines() {
    local compile objects=$TMP/lines line lines
    read -ra compile <<<"$1 $2 -O0"
    rm -rf "$objects"
    mkdir "$objects"
    for source in aco.c tests/{harness,no_inline,test_unwinding}.c; do
        must "$1 $2: $source does not compile" "${compile[@]}" -std=gnu99 \
            -fasynchronous-unwind-tables "${CMOCKA[@]}" -I. -c "$source" \
            -o "$objects/$(basename "$source").o"
    done
    "${compile[@]}" -I. -E -P acosw.S | tr ';' '\n' >"$TMP/acosw.s"
    mapfile -t lines < <(awk '/^ *acosw:/ { is_acosw = 1 } /\.cfi_endproc/ { is_acosw = 0 }
                              is_acosw && /\.cfi_(adj|def|esc|off|rel|rest)/ { print NR }' \
        "$TMP/acosw.s")
    ((${#lines[@]} > 10)) || fail "$1 $2: no call-frame information found"
    for line in "${lines[@]}"; do
        sed "${line}d" "$TMP/acosw.s" >"$TMP/fault.s"
        must "$1 $2: $TMP/fault.s does not link" "${compile[@]}" "$TMP/fault.s" "$objects"/*.o \
            -o "$TMP/program" "${CMOCKA[@]}" -lpthread -lm
        if timeout 60 "$TMP/program" >"$TMP/said" 2>&1; then
            fail "$1 $2: not missed: $(sed -n "${line}p" "$TMP/acosw.s")"
        fi
    done
    echo "$1 $2: ${#lines[@]} lines of call-frame information, each missed if taken out"
}

# put_breakpoints ALL: puts a breakpoint before each instruction of the inline assembly that has the
# jump of a switch, as a compiler writes it; if ALL is not 0, of each function instead.
# shellcheck disable=SC2317 # on_each_foreign calls what calls it
put_breakpoints() {
    awk -v all="$1" '
        function put(text,    lines, ct, i) {
            ct = split(text, lines, /[;\n]/)
            for (i = 1; i <= ct; i++) {
                if (lines[i] ~ /^[ \t]*[A-Za-z]+([ \t]|$)/) {
                    print "\tbrk 1"
                }
                print lines[i]
            }
        }
        all { if (is_code) put($0); else print }
        all && /\.cfi_startproc/ { is_code = 1 }
        all && /\.cfi_endproc/ { is_code = 0 }
        all { next }
        /^[ \t]*\/\/APP/ { is_asm = 1; text = "" }
        /^[ \t]*\/\/NO_APP/ {
            is_asm = 0
            if (text ~ /br[ \t]+x17/) put(text); else print text
        }
        is_asm { text = text $0 "\n"; next }
        { print }'
}

# Checks arm64 alone, with return addresses signed.
# shellcheck disable=SC2317 # on_each_foreign calls it
check_signed() {
    [[ "$PROCESSOR" == arm64 ]] || return 0
    local compile objects=$TMP/signed option=-mbranch-protection=standard
    local RUN=("${RUN[@]}" -cpu max)
    read -ra compile <<<"$1 $2"
    compile+=("$option" -std=gnu99 -fasynchronous-unwind-tables)
    build_objects "$1" "$2" "$objects" "$option"
    "${compile[@]}" -I. -E -P acosw.S | put_breakpoints 1 >"$TMP/acosw.s"
    must "acosw.S does not assemble" "${compile[@]}" -c "$TMP/acosw.s" -o "$objects/acosw.S.o"
    for option in -O0 -O2 "-O2 -fomit-frame-pointer"; do
        # shellcheck disable=SC2086 # there may be two
        must "$option: does not compile" "${compile[@]}" $option "${C_WARNINGS[@]}" \
            -DHAVE_BREAKPOINTS "${CMOCKA[@]}" -I. -S tests/test_unwinding.c -o "$TMP/plain.s"
        put_breakpoints 0 <"$TMP/plain.s" >"$TMP/program.s"
        must "$option: does not link" "${compile[@]}" "$TMP/program.s" "$objects"/*.o \
            -o "$TMP/program" "${CMOCKA[@]}" -lpthread -lm
        must "arm64, signed, $option: a backtrace is wrong" "${RUN[@]}" "$TMP/program"
    done
    echo "arm64: return addresses signed, looked at from each instruction"
}

failed=0
on_each_native check gcc clang
on_each_native check_lines gcc
on_each_foreign check
on_each_foreign check_signed
((failed == 0))
