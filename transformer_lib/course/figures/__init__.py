"""Drawings that belong to a chapter; what any figure shares is in ``transformer_lib.plots``."""
