"""Deciding what a change of history makes wrong, and doing just that again."""
