"""What a learner does in the course: exercises with their checks, guesses, and how both went."""
