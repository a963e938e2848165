"""Which hand-ins are more alike than a class usually is; imported by instructors' commands."""
