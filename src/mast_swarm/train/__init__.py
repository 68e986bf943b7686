"""Imitation learning: rollouts, expert labels, replay, updates, checkpoints."""
