"""Scores: the challenge's mAP, exactly as the reference computes it. Pure numpy, no torch."""
