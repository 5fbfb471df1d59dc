"""Directories of files that the file sink has written, as streams of whole epochs."""
