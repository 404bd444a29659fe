#!/bin/bash
# PROBE hidden-move: move the directory above a hidden one away
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
(mv "$(dirname "$HIDDEN")" "$WS/moved") 2>/dev/null && esc || blk
