# PROBE core-dumps: switch core dumps on
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import resource

try:
    attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)))
except ValueError as error:
    done(False, error)
