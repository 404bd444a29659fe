"""``python -m interlock.actors.launcher``: the launcher's process."""

from ..process import run_owner
from .actor import LauncherActor

if __name__ == "__main__":
    run_owner(LauncherActor)
