"""One task, one sequence of tasks, and the folder a run lives in."""
