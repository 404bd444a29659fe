# PROBE limits-raise: raise one's own hard limits
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import resource


def raise_():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard == resource.RLIM_INFINITY:
        return True
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard * 2, hard * 2))


try:
    attempt(raise_)
except ValueError as error:
    done(False, error)
