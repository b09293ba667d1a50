from setuptools import setup

setup(cffi_modules=["aiorecv/_native/build.py:ffi", "aiorecv/bench/_build.py:ffi"])
