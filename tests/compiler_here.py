"""Tests that compile: they run where NVIDIA's compiler is, and everywhere on CI, where set-up has to have made it."""

import os

import pytest

from trt_compiler.environment import absence

needs_compiler = pytest.mark.skipif(bool(absence()) and not os.environ.get("CI"), reason=absence().replace("\n", " "))
