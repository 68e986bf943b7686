"""What people look at: plots (matplotlib) and the self-contained HTML replay."""
