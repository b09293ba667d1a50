"""Servers and test suites of other projects, unchanged, on our transport.

Run by ``pytest tests/interop``, after ``pip install --require-hashes -r
tests/interop/requirements.txt``. A plain ``pytest`` leaves this directory out: it needs much that
receiving packets does not.
"""
