"""Rules of the precision check: one file each."""
