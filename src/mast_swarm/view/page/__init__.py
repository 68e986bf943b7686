"""The replay page: a template, its style and its scripts."""
