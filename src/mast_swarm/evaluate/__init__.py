"""Rollouts to tables: who drives, what was measured, results on disk."""
