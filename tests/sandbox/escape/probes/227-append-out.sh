#!/bin/bash
# PROBE append-out: append to an outside file
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
(echo pwn >> "$OUT/secret.txt") 2>/dev/null && esc || blk
