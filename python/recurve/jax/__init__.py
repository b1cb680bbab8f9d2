"""Recurrent networks and scans as functions of JAX."""

from recurve.jax._network import Network
from recurve.jax._scan import scan

__all__ = ["Network", "scan"]
