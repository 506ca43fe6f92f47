"""Runs checks on components that are made here, without a plugin around them."""

import itertools

import pytest

from axisrl.testing import CheckFailed, CheckSkipped, Subject, run

pytest_plugins = ["axisrl.testing.fixtures"]


class Trial:
    """``trial(check, case, make)`` runs one check on ``make(context)``."""

    def __init__(self, folder):
        self._folder = folder
        self._count = itertools.count()

    def __call__(self, check, case, make, descriptor=None):
        folder = self._folder / f"trial-{next(self._count)}"
        folder.mkdir()
        builder = (
            make if getattr(make, "takes_ref", False) else (lambda ref, context: make(context))
        )
        run(check, Subject(case=case, work_dir=folder, builder=builder, descriptor=descriptor))

    def passes(self, suite, case, make, descriptor=None, *, skips=()):
        """Every check of the suite holds; those in ``skips`` are skipped."""
        for check in suite.checks:
            if check in skips:
                with pytest.raises(CheckSkipped):
                    self(check, case, make, descriptor)
            else:
                self(check, case, make, descriptor)

    def fails(self, check, case, make, told, descriptor=None):
        """The check says ``told`` (a regular expression)."""
        with pytest.raises(CheckFailed, match=told):
            self(check, case, make, descriptor)


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path)
