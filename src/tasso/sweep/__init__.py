"""Many runs: what they are called, how they are listed, and who carries them out."""

from tasso.sweep.jobs import Job

__all__ = ["Job"]
