# PROBE memory-shared: fill memory by way of /dev/shm
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
n = 0
try:
    with open("/dev/shm/" + TAG, "wb") as file:
        for n in range(150):
            file.write(bytes(1 << 20))
        file.flush()
    done(True)
except OSError as error:
    done(False, error)
finally:
    try:
        os.unlink("/dev/shm/" + TAG)
    except OSError:
        pass
