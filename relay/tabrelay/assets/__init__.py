"""Files that browsers load: worker, client, demo, runtimes, and the page of the relay itself."""
