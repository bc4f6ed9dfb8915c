"""The command ``bathyal``, also ``python -m bathyal``."""

import signal
import sys

from bathyal import _bathyal


def main() -> None:
    """Runs the command line ``sys.argv`` and exits with its code."""
    # The command handles Ctrl-C itself; Python would raise KeyboardInterrupt in addition.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_bathyal.run_command(["bathyal", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
