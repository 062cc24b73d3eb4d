"""Scores: the challenge's mAP, spotting, diagnosis. numpy only: no torch, no drawing."""
