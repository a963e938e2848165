"""Known mistakes about the Transformer, each with the wrong code that it leads to."""
