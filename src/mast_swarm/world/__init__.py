"""What exists outside the robots' heads: one file a task."""
