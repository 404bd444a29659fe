#!/bin/bash
# PROBE hidden-list: list a hidden directory
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
ls "$HIDDEN" 2>/dev/null | grep -q file && esc || blk
