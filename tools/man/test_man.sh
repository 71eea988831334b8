#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The manual pages: mandoc and man-db find no fault in them; every public function, by what the
# library exports and by what README.md names, has one; every page is about something that the
# headers declare, as they declare it; and all that the headers say is in some page, to the letter.

# shellcheck source=tests/harness.sh
. tests/harness.sh

need mandoc:mandoc man:man-db python3:python3
need_libraries
HEADERS=(aco.h aco_assert_override.h extra/*/aco_*.h)
PAGES=$TMP/man

# Exported, since what is inline calls it, and not for users: what aco.h and the headers of optional
# parts have in their sections on the inline switch.
INTERNAL=(aco_i_acquire aco_i_assert_failed aco_i_check_resume aco_i_check_running aco_i_continue
    aco_i_end aco_i_exceptions_return aco_i_fail aco_i_ferry aco_i_load_fpucw_mxcsr aco_i_misuse
    aco_i_receive aco_i_send aco_i_suspend aco_i_wake)

must "pages.py fails" python3 tools/man/pages.py "$PAGES" "${HEADERS[@]}"
pages=("$PAGES"/man3/*.3 "$PAGES"/man7/*.7)

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

nm -D --defined-only "$OUTPUT/libaco.so" | awk '$2 == "T" { sub(/(_aco_acosw_.*)?@.*/, "", $3); print $3 }' \
    >"$TMP/functions"
grep -oE '\baco[a-z0-9_]*\(' README.md | tr -d '(' | sort -u >>"$TMP/functions"
grep -qx aco_resume "$TMP/functions" || fail "the exported functions were not found"
while read -r name; do
    [[ -e $PAGES/man3/$name.3 || " ${INTERNAL[*]} " == *" $name "* ]] ||
        fail "$name has no manual page: write a contract above it, or list it as internal here"
done <"$TMP/functions"
echo "every one of $(wc -l <"$TMP/functions") functions has a page, or is internal"

# ---- Every page is right -------------------------------------------------------------------------

# The page as plain text, in lines as wide as need be.
plain() {
    mandoc -T utf8 -O width=1000 "$1" | sed 's/.\x08//g'
}

include=()
for header in "${HEADERS[@]}"; do
    include+=(-I"$(dirname "$header")")
done

# What a page says in its synopsis is declared once more, which a compiler takes only if it is the
# same; but types, which it doesn't take twice. Macros are there.
{
    for page in "$PAGES"/man3/*.3; do
        plain "$page" | sed -n '/^SYNOPSIS/,/^DESCRIPTION/{ /^[A-Z]/d; s/^ *//; p; }' |
            sed -E '/^typedef .*\{$/,/^\}/d; s/^#define (\w+).*/#ifndef \1\n#error "no macro \1"\n#endif/'
        name=$(basename "$page" .3)
        printf '#ifndef %s\nvoid (*pointer_to_%s)(void) = (void (*)(void))%s;\n#endif\n' \
            "$name" "$name" "$name"
    done
} >"$TMP/synopses.c"
must "the pages declare something else than the headers" "${CC:-gcc}" "${include[@]}" \
    -std=gnu99 -Wall -Werror -c "$TMP/synopses.c" -o "$TMP/synopses.o"
echo "what the pages declare, the headers declare"

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
    awk '/^\/\* ==== / { internal = /==== (Processor|System headers|The inline switch|Inline) / }
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

# ---- What does not become a page -----------------------------------------------------------------

sed 's/^ \* Starts or continues /&&&&&&/' aco.h >"$TMP/aco.h"
must_not "pages.py takes a contract that does not begin with a short sentence" \
    'aco.h:[0-9]+: the first sentence of a contract' \
    python3 tools/man/pages.py "$TMP/none" "$TMP/aco.h"
