"""The local page over a run's folder (``axisrl view``): curves and a rollout browser.

Nothing here writes into the run, reaches another machine or needs a file from outside this package.
"""
