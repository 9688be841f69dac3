"""Types, schemes and inference: Hindley and Milner's, with constraints on shapes."""
