"""The loop and what it needs: actors, rollouts, batches, evaluation, checkpoints. Start at
``controller.py``."""
