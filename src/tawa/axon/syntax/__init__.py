"""The text of programs and of types: tokens, trees with places, and a parser."""
