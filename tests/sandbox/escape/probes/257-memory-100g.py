# PROBE memory-100g: take 100 GB of memory
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
try:
    held = [bytearray(1 << 30) for _ in range(100)]
    done(True)
except MemoryError as error:
    done(False, error)
