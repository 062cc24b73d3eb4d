"""Models as ONNX or torch.export graphs."""
