#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails, always: what test_runner.sh shows test.sh, to see that it notices.
echo "this test fails on purpose"
exit 1
