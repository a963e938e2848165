"""The instructor's side: grading in a sandbox, likeness of hand-ins, rating by people."""
