"""An experiment, the folder of a run, and the configurations that come with the library."""
