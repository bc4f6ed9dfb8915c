"""The command ``bathyal``, also ``python -m bathyal``."""

import signal
import sys

from bathyal import _bathyal


def main() -> None:
    """Runs the command that ``sys.argv`` spells and exits with its code."""
    # The command listens for Ctrl-C itself and ends in order; Python would raise KeyboardInterrupt after it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_bathyal.run_command(["bathyal", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
