"""The paper's data sets: archives, unpacking, annotation files, and checks of the result."""
