"""The paper's evaluation: its published numbers, the runs that repeat it, tables, and a verdict on its claims."""
