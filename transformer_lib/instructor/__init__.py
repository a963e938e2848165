"""The instructor's side: grading in a sandbox, and rating by people."""
