"""What plugins share that compute: the math of losses, and what trainer backends and engines are
made of, in pure torch. The submodules import torch, this package does not; the core's commands
never import either.
"""
