"""Private files, state files, processes, pipes and timers of the operating system."""
