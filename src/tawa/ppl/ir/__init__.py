"""The model IR: structured programs of one lane; verifier, text and interpreter."""
