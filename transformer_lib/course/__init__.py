"""The course: exercises and their checks, known mistakes, lineages, trained models, drawings."""
