"""Kills parts of real runs on purpose and judges what became of them: ``axisrl chaos``.

Reads run folders and starts ``axisrl run`` processes; imports nothing of a run itself.
"""
