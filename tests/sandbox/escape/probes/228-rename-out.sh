#!/bin/bash
# PROBE rename-out: rename an outside file
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
mv "$OUT/mv.txt" "$OUT/gone.txt" 2>/dev/null && esc || blk
