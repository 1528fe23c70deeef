"""The paper's evaluation: its tables beside its own numbers, and what becomes of its claims."""
