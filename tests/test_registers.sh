#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles and runs registers.c, which keeps values alive across the switch, with all options that
# make a compiler use registers and stack in another way. Variants with AVX-512 are compiled, and
# their assembly is read; so are functions that would use their red zone if they could.
# parts: x86_64 i386 arm64 riscv64 arm thumb
# seconds: 45 40 20 20 20 20

# shellcheck source=tests/harness.sh
. tests/harness.sh

LIBRARY=(aco.c acosw.S)

# Options for every processor. After a bar: 1 if the library is to be compiled with them too.
COMMON=(
    "-O0|"
    "-O1|"
    "-O2|1"
    "-O3|"
    "-Os|"
    "-O2 -flto|1"
    "-O2 -fPIC|"
    "-O0 -fPIC|"
    "-O2 -fpie -pie|"
    "-O2 -fno-pic -no-pie|"
    "-O2 -fno-omit-frame-pointer|"
    "-O2 -fomit-frame-pointer|"
    "-O0 -fomit-frame-pointer|"
    "-O2 -fstack-protector-all|"
    "-O2 -DACO_CONFIG_NO_INLINE_SWITCH|"
    "-O2 -DACO_CONFIG_SHARE_FPU_MXCSR_ENV|1"
)
ONLY_X86_64=(
    "-O2 -fcf-protection=full|1"
    "-O2 -mavx2|"
    "-O3 -mavx2 -fPIC|"
    "-O0 -mavx2|"
)
ONLY_I386=(
    "-O2 -fcf-protection=full|1"
    "-O2 -msse2 -mfpmath=sse|"
    "-O2 -msse2 -mfpmath=sse -fPIC|"
    "-O2 -mno-sse|"
    "-O2 -mno-sse -fPIC|"
    "-O3 -fno-pic -no-pie -fomit-frame-pointer|"
)
declare -A ONLY_FOREIGN=(
    [arm64]="-O2 -mbranch-protection=standard|1
-O2 -march=armv8-a+sve|
-O0 -march=armv8-a+sve|"
    [arm]="-O2 -mfpu=neon|
-O0 -mfpu=neon|"
    [thumb]="-O2 -mfpu=neon|
-O0 -mfpu=neon|"
    [riscv64]="-O2 -march=rv64gcv|
-O0 -march=rv64gcv|"
)
AVX512=(-mavx512f -mavx512vl -mavx512bw)

# The command that runs a program: nothing, or an emulator.
RUN=()

# Runs one variant: compiler, objects of the library, options, whether to compile the library too.
run_variant() {
    local cc=$1 objects=$2 with_library=$4 options sources
    read -ra options <<<"$3"
    if [[ -n "$with_library" ]]; then
        sources=("${LIBRARY[@]}")
    else
        sources=("$objects/aco.o" "$objects/acosw.o")
    fi
    must "$cc $3: does not compile" "$cc" "${options[@]}" "${C_WARNINGS[@]}" -I. \
        tests/programs/registers.c "${sources[@]}" -o "$TMP/registers"
    if [[ $3 == *rv64gcv* ]]; then
        local RUN=("${RUN[@]}" -cpu "rv64,v=true,vext_spec=v1.0")
    fi
    must "$cc $3: values have changed" "${RUN[@]}" "$TMP/registers"
}

# The variants of a compiler and the options for a kind of processor, and those that follow.
run_variants() {
    local cc=$1 width=$2 objects=$TMP/objects variants source variant options
    shift 2
    variants=("${COMMON[@]}" "$@")
    read -ra options <<<"$width"
    mkdir -p "$objects"
    for source in "${LIBRARY[@]}"; do
        must "$source does not compile" "$cc" "${options[@]}" -O2 -fPIC -I. -c "$source" \
            -o "$objects/${source%.*}.o"
    done
    for variant in "${variants[@]}"; do
        if [[ $variant == *flto* ]] && ! can_build "$cc" "${options[@]}" -flto; then
            echo "$cc $width ${variant%|*}: does not link here, not tested"
            continue
        fi
        if [[ $variant == *avx2* ]] && ! grep -qw avx2 /proc/cpuinfo; then
            echo "$cc $width ${variant%|*}: not run, no AVX2 here"
            continue
        fi
        run_variant "$cc" "$objects" "$width ${variant%|*}" "${variant#*|}"
    done
    echo "$cc $width: ${#variants[@]} variants of options"
}

# Prints each register that only AVX-512 has and that the code after an arrival reads before it is
# written. An operand is read unless it is the last one (AT&T syntax) and the only one with it.
registers_read_on_arrival() {
    awk '
        /^keep_and_[a-z]+:/ { name = $1; arrived = 0; split("", written) }
        /jmpq?[ \t]+\*/ { arrived = 1; next }
        arrived && !/^[ \t]*[.#]/ {
            line = $0
            sub(/#.*/, "", line)
            while (match(line, /%(k[0-7]|[xyz]mm(1[6-9]|2[0-9]|3[01]))/)) {
                register = substr(line, RSTART + 1, RLENGTH - 1)
                line = substr(line, RSTART + RLENGTH)
                sub(/^[xyz]/, "", register)
                if (line !~ /^[ \t]*$/ && !(register in written)) {
                    print name, register
                }
                written[register] = 1
            }
        }' "$1"
}

# Options that make the compiler use the registers of AVX-512, on a machine that may not have them.
read_avx512() {
    local cc=$1 level
    for level in -O1 -O2 -O3; do
        must "$cc $level ${AVX512[*]}: does not compile" "$cc" "$level" "${AVX512[@]}" \
            "${C_WARNINGS[@]}" -I. -c tests/programs/registers.c -o "$TMP/registers.o"
        must "$cc $level ${AVX512[*]}: does not compile" "$cc" "$level" "${AVX512[@]}" \
            "${C_WARNINGS[@]}" -I. -S tests/programs/registers_avx512.c -o "$TMP/registers_avx512.s"
        [[ "$(grep -cE 'jmpq?\s+\*' "$TMP/registers_avx512.s")" -eq 2 ]] ||
            fail "$cc $level: not the two switches that are to be read"
        registers_read_on_arrival "$TMP/registers_avx512.s" >"$TMP/read"
        if [[ -s "$TMP/read" ]]; then
            sort -u "$TMP/read" >&2
            fail "$cc $level ${AVX512[*]}: these are taken for kept by the switch"
        fi
    done
    echo "$cc ${AVX512[*]}: compiled and read, not run"
}

# A copying coroutine's red zone is not saved, and the switch may call: nothing may lie below SP.
read_red_zone() {
    local cc=$1 level
    for level in -O1 -O2 -O3 -Os; do
        must "$cc $level: red_zone.c does not compile" "$cc" "$level" "${C_WARNINGS[@]}" -I. \
            -Iextra/value -S tests/programs/red_zone.c -o "$TMP/red_zone.s"
        [[ "$(grep -cE 'jmpq?\s+\*' "$TMP/red_zone.s")" -ge 5 ]] ||
            fail "$cc $level: not the switches that are to be read"
        if grep -nE -e '-[0-9]+\(%rsp\)' "$TMP/red_zone.s" >&2; then
            fail "$cc $level: a function with the inline switch uses its red zone"
        fi
    done
    echo "$cc: no red zone around the switch"
}

# The inline switch is written in the other syntax than the compiler writes here.
run_intel() {
    run_variant "$1" "" "$2 -O2 -masm=intel" 1
    echo "$1 $2 -masm=intel"
}

# Where there is no floating point, gcc knows none of its registers.
run_without_floating_point() {
    local cc=$1 width=$2 option
    for option in -mgeneral-regs-only -mno-80387 -msoft-float; do
        must "$cc $width $option: does not compile" "$cc" "$width" "$option" -O2 \
            "${C_WARNINGS[@]}" -I. tests/programs/library_user.c "${LIBRARY[@]}" -o "$TMP/user"
        must "$cc $width $option: fails" "$TMP/user"
        echo "$cc $width $option"
    done
}

# Main in arm code and the coroutine in thumb code, and the other way round; the library in either.
check_two_modes() {
    local main its library option cc
    read -ra cc <<<"${CROSS[arm]/-marm/}"
    read -ra RUN <<<"${EMULATOR[arm]}"
    for main in -marm -mthumb; do
        its=$([[ "$main" == -marm ]] && echo -mthumb || echo -marm)
        for library in -marm -mthumb; do
            must "the library does not compile" "${cc[@]}" "$library" -O2 -I. -c aco.c \
                -o "$TMP/aco.o"
            must "the library does not compile" "${cc[@]}" "$library" -I. -c acosw.S \
                -o "$TMP/acosw.o"
            for option in -fomit-frame-pointer -fno-omit-frame-pointer -O0; do
                must "$main $option: does not compile" "${cc[@]}" "$main" -O2 "$option" -I. \
                    -DKEEPS_MAIN -c tests/programs/registers_two_modes.c -o "$TMP/main.o"
                must "$its $option: does not compile" "${cc[@]}" "$its" -O2 "$option" -I. \
                    -c tests/programs/registers_two_modes.c -o "$TMP/its.o"
                must "$main $its $option: does not link" "${cc[@]}" \
                    "$TMP"/{main,its,aco,acosw}.o -o "$TMP/two_modes"
                must "main $main, coroutine $its, library $library, $option: values have changed" \
                    "${RUN[@]}" "$TMP/two_modes"
            done
        done
    done
    echo "arm and thumb code in one program"
}

# Everything is tried, whatever fails: a failure is that of one compiler and kind of processor.
find_compilers gcc clang
failed=0
for cc in "${FOUND[@]}"; do
    for width in "${WIDTHS[@]}"; do
        only=("${ONLY_X86_64[@]}")
        [[ "$width" == -m64 ]] || only=("${ONLY_I386[@]}")
        (run_variants "$cc" "$width" "${only[@]}") || failed=1
        (run_intel "$cc" "$width") || failed=1
        (run_without_floating_point "$cc" "$width") || failed=1
    done
    [[ -n $PART && $PART != x86_64 ]] || (read_avx512 "$cc" && read_red_zone "$cc") || failed=1
done
for name in "${FOREIGN[@]}"; do
    read -ra RUN <<<"${EMULATOR[$name]}"
    read -r cc width <<<"${CROSS[$name]}"
    only=()
    [[ -z "${ONLY_FOREIGN[$name]:-}" ]] || mapfile -t only <<<"${ONLY_FOREIGN[$name]}"
    (run_variants "$cc" "$width" "${only[@]}") || failed=1
done
if [[ -n "${CROSS[arm]:-}" ]]; then
    (check_two_modes) || failed=1
fi
exit "$failed"
