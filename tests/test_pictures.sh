#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The pictures are what their source draws, well-formed, small, and each shown by some document.
# Their source finds text that leaves its place or lies on other text.

# shellcheck source=tests/harness.sh
. tests/harness.sh

[[ -f img/draw.py ]] || skip "there is no img/draw.py"
need python3:python3
export PYTHONDONTWRITEBYTECODE=1

must "the pictures are not what their source draws" python3 img/draw.py --check
for name in logo thread_model_{0..3} proof_{0..3} life memory; do
    [[ -s "img/$name.svg" ]] || fail "there is no img/$name.svg"
done
must "an SVG is not well-formed" python3 -c '
import glob
import xml.dom.minidom
for name in glob.glob("img/*.svg"):
    xml.dom.minidom.parse(name)'

# The pictures below img/ of the folder $1 that no document of the project shows.
unshown() {
    local file
    find "$1/img" -type f -regex '.*\.\(svg\|png\|jpg\)' | while IFS= read -r file; do
        grep -rqF "${file#"$1"/}" --include='*.md' --exclude-dir=output . || echo "${file#"$1"/}"
    done
}
[[ -z "$(unshown .)" ]] || fail "no document shows $(unshown . | tr '\n' ' ')"
cp -r img "$TMP/img"
touch "$TMP/img/bench/life.png"
[[ "$(unshown "$TMP")" == img/bench/life.png ]] ||
    fail "a picture that no document shows is not found"

# finds FAULT EXPECTED SCRIPT: what is wrong in a copy that the script (of sed) has changed.
finds() {
    rm -rf "$TMP/img"
    cp -r img "$TMP/img"
    sed -i "$3" "$TMP/img/draw.py"
    must_not "$1 is not found" "$2" python3 "$TMP/img/draw.py" --check
    echo "found: $1"
}
finds "a picture that is out of date" "life.svg is not what draw.py draws" \
    's/from any but running/from wherever/'
finds "a picture without a function" "memory.svg is drawn by no function" 's/life, memory\]/life]/'
finds "text that leaves its box" "text leaves its box" \
    's/"saved out"/"saved out to somewhere else"/'
finds "text that leaves the panel" "text leaves the panel" 's/c.text(512, 320/c.text(902, 320/'
finds "text on other text" "text on text" 's/c.text(512, 320/c.text(512, 330/'
echo "all pictures are what img/draw.py draws"
