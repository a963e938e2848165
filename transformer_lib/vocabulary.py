"""The four special tokens, with the same numbers everywhere in the course."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
PAD_PIECE, UNK_PIECE, BOS_PIECE, EOS_PIECE = "<pad>", "<unk>", "<s>", "</s>"
