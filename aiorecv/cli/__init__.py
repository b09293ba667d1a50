"""The ``aiorecv`` command."""


def main() -> int:
    raise NotImplementedError
