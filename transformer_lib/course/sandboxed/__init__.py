"""What runs inside the sandbox beside the code of a student. It holds the answer to no exercise."""
