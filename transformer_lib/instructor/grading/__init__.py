"""Grading of untrusted work: what crosses the border between a grader and a student's code."""
