"""Decoding files and streams, resampling to 25 fps, luma, overlays."""
