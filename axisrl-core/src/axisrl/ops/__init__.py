"""Shared math of the loss plugins: small and pure torch. The submodules import torch, this package
does not; the core's commands never import either.
"""
