#!/bin/bash
# PROBE symlink-out: make a symbolic link outside
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
ln -s x "$OUT/made" 2>/dev/null && esc || blk
