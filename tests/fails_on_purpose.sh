#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails, once it has taken all lines of the file $PASSES, if there is one: what test_runner.sh shows
# test.sh, to see that it notices.
if [[ -s ${PASSES:-} ]]; then
    sed -i 1d "$PASSES"
    exit
fi
echo "this test fails on purpose"
exit 1
