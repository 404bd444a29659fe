#!/bin/bash
# PROBE leftover-stopped: leave a stopped process behind
esc() { echo "RESULT ESCAPE $*"; }; blk() { echo "RESULT BLOCKED $*"; }
setsid bash -c "kill -STOP \$\$; exec -a $TAG sleep 60" >/dev/null 2>&1 </dev/null &
exec -a "$TAG" bash -c 'echo STARTED'
