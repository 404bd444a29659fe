#!/bin/bash
# PROBE hidden-write: change a hidden directory
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
(echo pwn > "$HIDDEN/file" || echo pwn > "$HIDDEN/new" || rm -rf "$HIDDEN") 2>/dev/null && esc || blk
