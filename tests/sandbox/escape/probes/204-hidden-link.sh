#!/bin/bash
# PROBE hidden-link: hard link a hidden file to a place that is open
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
(ln "$HIDDEN/file" "$WS/linked" && grep -q secret "$WS/linked") 2>/dev/null && esc || blk
