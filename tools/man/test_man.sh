#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The manual pages: mandoc and man-db find no fault in them; the functions of the maps, and those
# that README.md and docs/howto.md name, have one; every page is about something that the headers
# declare, as they declare it; and all that the headers tell users is in some page, to the letter.

# shellcheck source=tests/harness.sh
. tests/harness.sh

need mandoc:mandoc man:man-db python3:python3
shopt -s nullglob
# shellcheck disable=SC2207 # they are patterns of files
HEADERS=($(sed -n 's/^include //p' packaging/installed))
PROGRAMS=(pthreads/[a]co-run)
shopt -u nullglob
MAPS=(packaging/libaco.map)
[[ ! -d runtime ]] || MAPS+=(packaging/libaco_runtime.map)
[[ ! -d hooks ]] || MAPS+=(packaging/libaco_hooks.map)
PAGES=$TMP/man

must "pages.py fails" python3 tools/man/pages.py "$PAGES" "${MAPS[@]}" "${HEADERS[@]}" \
    "${PROGRAMS[@]}"
pages=("$PAGES"/man3/*.3 "$PAGES"/man7/*.7)
((${#PROGRAMS[@]} == 0)) || pages+=("$PAGES"/man1/*.1)

# ---- Form ----------------------------------------------------------------------------------------

mandoc -T lint "${pages[@]}" >"$TMP/said" 2>&1 || true
[[ ! -s $TMP/said ]] || fail "mandoc finds faults: $(<"$TMP/said")"
for page in "${pages[@]}"; do
    name=$(basename "$page" ".${page##*.}")
    man --warnings -E UTF-8 -Tutf8 -l - <"$page" 2>"$TMP/said" >"$TMP/page"
    [[ ! -s $TMP/said ]] || fail "man finds faults in $page: $(<"$TMP/said")"
    if have lexgrog; then
        [[ $(lexgrog "$page") == *"\"$name - "* ]] || fail "apropos does not find $page by its name"
    fi
done
echo "mandoc and man find no fault in ${#pages[@]} pages"

# ---- Every function has a page -------------------------------------------------------------------

# pages.py itself compares the map with the contracts.
documents=(README.md)
[[ ! -d docs ]] || documents+=(docs/howto.md)
grep -ohE '\baco[a-z0-9_]*\(' "${documents[@]}" | tr -d '(' | sort -u >"$TMP/functions"
grep -qx aco_resume "$TMP/functions" || fail "${documents[*]}: no function is named"
while read -r name; do
    [[ -e $PAGES/man3/$name.3 ]] || fail "${documents[*]}: $name is named, and has no manual page"
done <"$TMP/functions"
grep -v ' aco_cancel;' packaging/libaco.map >"$TMP/libaco.map"
must_not "pages.py takes a map that lacks a function" 'aco_cancel has a contract in a header, but' \
    python3 tools/man/pages.py "$TMP/none" "$TMP/libaco.map" "${MAPS[@]:1}" "${HEADERS[@]}"
sed 's/ aco_cancel;/&\n    aco_other;/' packaging/libaco.map >"$TMP/libaco.map"
must_not "pages.py takes a map with a function more" 'aco_other is listed, but has no contract' \
    python3 tools/man/pages.py "$TMP/none" "$TMP/libaco.map" "${MAPS[@]:1}" "${HEADERS[@]}"
echo "the functions of ${MAPS[*]##*/}, and the $(wc -l <"$TMP/functions") that" \
    "${documents[*]} name, have pages"

# ---- Every page is right -------------------------------------------------------------------------

# The page as plain text, in lines as wide as need be.
plain() {
    mandoc -T utf8 -O width=1000 "$1" | sed 's/.\x08//g'
}

include=()
for header in "${HEADERS[@]}"; do
    include+=(-I"$(dirname "$header")")
done

# The synopsis of each page is declared once more, which a compiler takes only if it is the same;
# but types, which it doesn't take twice. Macros must be defined.
{
    for page in "$PAGES"/man3/*.3; do
        plain "$page" | sed -n '/^SYNOPSIS/,/^DESCRIPTION/{ /^[A-Z]/d; s/^ *//; p; }' |
            sed -E -e '/^(typedef|struct) .*\{$/,/^\}/d' \
                -e 's/^#define (\w+).*/#ifndef \1\n#error "no macro \1"\n#endif/'
        name=$(basename "$page" .3)
        case $name in
        *_t) printf 'typedef %s type_%s;\n' "$name" "$name" ;;
        *) printf '#ifndef %s\nvoid (*pointer_to_%s)(void) = (void (*)(void))%s;\n#endif\n' \
            "$name" "$name" "$name" ;;
        esac
    done
} >"$TMP/synopses.c"
must "the pages declare something else than the headers" "${CC:-gcc}" "${include[@]}" \
    -std=gnu99 -Wall -Werror -c "$TMP/synopses.c" -o "$TMP/synopses.o"
echo "what the pages declare, the headers declare"

# see_also PAGE: what its last section names, as NAME.NUMBER.
see_also() {
    sed -n '/^\.SH SEE ALSO/,$ s/^\.BR \\%\(.*\) (\(.\)).*/\1.\2/p' "$1"
}

for page in "${pages[@]}"; do
    while read -r name; do
        [[ -e $PAGES/man${name##*.}/$name ]] || fail "$page: SEE ALSO names $name, which is no page"
    done < <(see_also "$page")
done
for name in aco_yield.3 aco_create.3 aco_t.3 aco.7; do
    see_also "$PAGES/man3/aco_resume.3" | grep -qx "$name" || fail "aco_resume.3 lacks $name"
    [[ $name == aco.7 ]] || see_also "$PAGES/man3/$name" | grep -qE '^aco_(create|resume)\.3' ||
        fail "SEE ALSO of $name lacks its family"
done
echo "SEE ALSO names the family of a page, and pages that are there"

for program in "${PROGRAMS[@]}"; do
    page=$PAGES/man1/${program##*/}.1 ct=0
    while read -r option; do
        plain "$page" | grep -qE -- "^ +$option( |\$)" || fail "$page: nothing about $option"
        ct=$((ct + 1))
    done < <(sed -nE 's/^    (--[a-z-]+=?)(\*?)\).*/\1\2/p' "$program" | sed 's/\*$/[A-Z]+.*/')
    ((ct > 5)) || fail "$program has only $ct options"
    echo "the page of ${program##*/} describes its options"
done

# Letters and digits alone, so that neither line breaks nor marks matter.
letters() {
    LC_ALL=C tr -cd '[:alnum:]'
}

for page in "${pages[@]}"; do
    plain "$page" | letters
    echo
done >"$TMP/pages"
comments=0
for header in "${HEADERS[@]}"; do
    # The comments in column 1 of the sections that are for users, each in a line.
    awk '/^\/\* ==== Internals/ { exit }
         /^\/\* ==== / { internal = /==== (System headers|Inline|Private) / }
         /^\/\* ==== / || internal { next }
         /^\/\*/ { inside = 1 }
         inside { printf "%s ", $0 }
         inside && /\*\// { inside = 0; print "" }' "$header" >"$TMP/comments"
    while read -r comment; do
        comments=$((comments + 1))
        grep -qF -- "$(letters <<<"$comment")" "$TMP/pages" ||
            fail "$header: this is not in any page: $comment"
    done <"$TMP/comments"
done
((comments > 50)) || fail "there are only $comments comments in the headers"
echo "all of $comments comments in the headers are in some page"

# ---- Text that becomes no page -------------------------------------------------------------------

sed 's/^ \* Starts or continues /&&&&&&/' aco.h >"$TMP/aco.h"
must_not "pages.py takes a contract that does not begin with a short sentence" \
    'aco.h:[0-9]+: the first sentence of a contract' \
    python3 tools/man/pages.py "$TMP/none" "${MAPS[@]}" "$TMP/aco.h" "${HEADERS[@]:1}"
