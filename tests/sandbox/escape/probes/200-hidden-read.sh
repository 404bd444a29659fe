#!/bin/bash
# PROBE hidden-read: read a file below a hidden directory of the workspace
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
grep -q secret "$HIDDEN/file" 2>/dev/null && esc || blk
