"""Scores of translations: BLEU and chrF, and the conventions of the paper."""
