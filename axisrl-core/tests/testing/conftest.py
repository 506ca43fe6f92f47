"""Runs checks on components that are made here, without a plugin around them."""

import itertools

import pytest

from axisrl.testing import CheckFailed, CheckSkipped, Subject, run


class Trial:
    """``trial(check, case, make)`` runs one check on ``make(context)``.

    ``says`` is the component's descriptor; ``builder`` replaces ``make`` where a check builds
    several components.
    """

    def __init__(self, folder):
        self._folder = folder
        self._count = itertools.count()

    def __call__(self, check, case, make=None, says=None, *, builder=None):
        folder = self._folder / f"trial-{next(self._count)}"
        folder.mkdir()
        build = builder or (lambda ref, context: make(context))
        run(check, Subject(case=case, work_dir=folder, builder=build, descriptor=says))

    def passes(self, suite, case, make=None, says=None, *, skips=(), builder=None):
        """Every check of the suite holds; those in ``skips`` are skipped."""
        for check in suite.checks:
            if check in skips:
                with pytest.raises(CheckSkipped):
                    self(check, case, make, says, builder=builder)
            else:
                self(check, case, make, says, builder=builder)

    def fails(self, check, case, make=None, told="", says=None, *, builder=None):
        """The check says ``told`` (a regular expression)."""
        with pytest.raises(CheckFailed, match=told):
            self(check, case, make, says, builder=builder)


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path)
