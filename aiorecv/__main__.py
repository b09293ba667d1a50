"""``python -m aiorecv``: the same as the ``aiorecv`` command."""

from aiorecv.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
