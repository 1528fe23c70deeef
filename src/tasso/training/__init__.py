"""Training of one task and of a sequence, the run folder, and what is done with a finished run."""
