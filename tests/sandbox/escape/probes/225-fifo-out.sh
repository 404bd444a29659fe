#!/bin/bash
# PROBE fifo-out: make a named pipe outside
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
mkfifo "$OUT/fifo" 2>/dev/null && esc || blk
