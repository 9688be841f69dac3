"""What a user asks for at the command line: the demo, explanations, a look at the machine."""
