"""The best translator in a given time: entries that anybody can run again."""
