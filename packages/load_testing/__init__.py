"""Load tests of a served model: the work, two generators, the records, and the laws that those must obey."""
